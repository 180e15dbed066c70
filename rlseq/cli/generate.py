"""`rlseq generate`: a sequence model writes on from a prompt, without torch."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rlseq.cli.output import Output, write_json
from rlseq.cli.params import Json, NetworkOption, PathArgument, Quiet


def generate(
    path: PathArgument = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="What to go on from.", show_default="a line break"),
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="How many tokens to make.")] = 500,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            min=0.0,
            help="Below 1 the likelier ones gain; 0 takes the likeliest.",
            show_default="1; 0 where a question is answered",
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=1, help="Choose among the K likeliest tokens.", show_default="all")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p", help="Choose among the likeliest tokens that together have this probability.", show_default="all"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random choices.")] = 0,
    checkpoint: NetworkOption = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Let a sequence model write.

    With numpy and ONNX Runtime alone: a run's model.onnx, a shipped model or a
    file. Text appears as it is made. A model of questions answers the prompt.

    Examples:

      rlseq generate                                the newest run
      rlseq generate text-gpt --prompt "def " --tokens 300 --temperature 0.8
      rlseq generate model.onnx --top-k 20 --top-p 0.95 --seed 7 --json
      rlseq generate runs/my-run --checkpoint last
      rlseq generate addition-transformer --prompt 123+456

    The JSON holds prompt, text, tokens, tokens_per_second, temperature, top_k,
    top_p, seed and path.
    """
    out = Output(as_json, quiet)
    with out.working():
        from rlseq.pipeline import generate as run

        def show(text: str) -> None:
            sys.stdout.write(text)
            sys.stdout.flush()

        result = run(
            path,
            prompt=prompt,
            tokens=tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            checkpoint=checkpoint,
            on_text=None if as_json else show,
        )
    if as_json:
        write_json(result)
    else:
        typer.echo()
        out.note(f"\n{result['tokens']} tokens, {result['tokens_per_second']:.0f} a second.")
