"""What can be done, one function each, for the command line and Python alike: train, evaluate, play, generate, export,
load.

PATH is always a run folder, a shipped agent's name or an `.onnx` file; left out, the newest run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlseq.envs.make import MakeEnv, import_modules, split_id
from rlseq.errors import UsageError, did_you_mean, require
from rlseq.evaluation import evaluate, no_environment
from rlseq.events import Callback, Event
from rlseq.locate import locate
from rlseq.playing import play
from rlseq.resolve import TREES

if TYPE_CHECKING:
    from rlseq.player.onnx_policy import OnnxPolicy

__all__ = ["ExportResult", "TrainingResult", "evaluate", "export", "generate", "load", "play", "train"]


class TrainingResult(NamedTuple):
    """The run's folder and its summary."""

    run: Path
    summary: dict[str, Any]


class ExportResult(NamedTuple):
    """The file and the parity report."""

    path: Path
    report: dict[str, Any]


def train(
    algorithm: str = "dqn",
    *,
    env: str | MakeEnv | None = None,
    recipe: str | Path = "auto",
    values: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    resume: str | Path | None = None,
    init_from: str | Path | None = None,
    new_head: bool = False,
    callbacks: Sequence[Callback] = (),
    source: str = "arguments",
    **everyday: Any,
) -> TrainingResult:
    """Train an agent or a sequence model, and export its best weights.

    Started by torchrun (or with its environment variables set) the processes train together; all get the result.

    Args:
        algorithm: "dqn" or "seq".
        env: dqn: a gymnasium id (`module:Env-v0` imports your module), or a function that makes an environment.
        recipe: "auto" takes the shipped recipe of the environment, if there is one; "none", a name, or a file.
        values: option values as nested dicts, `{"dqn": {"gamma": 0.995}}`.
        imports: modules that register environments.
        resume: a run to go on with, exactly; `steps` may be raised.
        init_from: a run whose best weights to start from, as far as they fit; what does not is listed in a warning.
        new_head: with init_from: the network's head begins anew, and what reads its inputs if those mean something
            else.
        callbacks: each is called with an `rlseq.events.Event`.
        source: what error messages call these arguments.
        everyday: shortcuts for options: steps, seed, name, device, amp, threads, lr, batch_size, freeze, lr_multiplier;
            dqn: envs; seq: data, context, net, size, loss, accumulate.

    Returns:
        The run's folder, which holds `policy.onnx` (seq: `model.onnx`), and its summary.

    Raises:
        UsageError: a wrong option, environment or run.
        Interrupted: a signal stopped it; everything is saved.
        RlseqError: anything else that went wrong, with what to do.
    """
    require("torch", "training")
    require("tensorboard", "training")
    require("onnx", "exporting the trained policy")
    require("onnxscript", "exporting the trained policy")
    if algorithm == "seq" and (env is not None or imports):
        raise UsageError("a sequence model is trained on data, not in an environment: give data, not env or imports.")
    if algorithm not in TREES:
        raise UsageError(
            f"unknown algorithm {algorithm!r}.{did_you_mean(algorithm, TREES)} There is: {', '.join(TREES)}."
        )
    if resume is not None and init_from is not None:
        raise UsageError("--resume goes on with a run and --from begins a new one from its weights: give one of them.")
    from rlseq.engine.distributed import joined
    from rlseq.planning import Request
    from rlseq.training import run_training

    request = Request(algorithm, env, recipe, values or {}, imports, resume, init_from, new_head, everyday, source)

    def tell(message: str) -> None:
        for callback in callbacks:
            callback(Event("warning", 0, 0, {"message": message}, lambda: None))

    with joined(tell) as world:
        run, summary = run_training(request, callbacks, world)
    return TrainingResult(run.path, summary)


def generate(
    path: str | Path | None = None,
    *,
    prompt: str | None = None,
    tokens: int = 500,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    checkpoint: str | None = None,
    on_text: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Let a sequence model write on from a prompt, without torch.

    Args:
        path: a run (its model.onnx writes), a shipped model or an `.onnx` file; None: the newest run.
        prompt: what to go on from; None: a line break.
        tokens: how many to make.
        temperature: the logits are divided by it; 0 takes the likeliest token. None: 1, or 0 where a question is
            answered.
        top_k: choose among so many of the likeliest tokens.
        top_p: choose among the likeliest tokens that together have this probability.
        seed: of the random choices.
        checkpoint: of a run: "best", "last" or a step, with its network instead of model.onnx; needs torch.
        on_text: called with prompt and text as they appear.

    Returns:
        prompt, text, tokens, tokens_per_second, temperature, top_k, top_p, seed, path.

    Raises:
        UsageError: a policy, an unknown character in the prompt, or a number that makes no sense.
    """
    from rlseq.generation import Wish, write

    wish = Wish(prompt, tokens, temperature, top_k, top_p, seed)
    return write(locate(path), wish, checkpoint, on_text)


def predict(
    path: str | Path | None = None,
    *,
    data: str | Path,
    out: str | Path,
    label: str | None = None,
    group: str | None = None,
    every: int | None = None,
    checkpoint: str | None = None,
) -> dict[str, Any]:
    """Let a sequence model tell classes, forecasts or answers, without torch, and write them to a CSV file.

    Args:
        path: a run (its model.onnx predicts), a shipped model or an `.onnx` file; None: the newest run.
        data: of series a CSV file with the columns that the model was trained on; of questions a text, one a line.
        out: the CSV file; "-": stdout. Classes: the series, its label if the data has it, the class and the probability
            of each. Forecasts: the row after which, the step, the value, its quantiles. Answers: question and answer.
        label: of classes: the column with the right ones; None: the one of training, if it is there.
        group: of classes: rows with the same value in this column are one series; None: as `label`.
        every: of forecasts: from every so-manieth row, counted from the end; None: from the last one alone.
        checkpoint: of a run: "best", "last" or a step, with its network instead of model.onnx; needs torch.

    Returns:
        kind, predictions (rows written), data, out and path; of classes accuracy, if there are labels; of forecasts
        windows, horizon and target; note, if there is something to know.

    Raises:
        UsageError: unfit data, or other columns than the model's; nothing is written.
    """
    from rlseq.predicting import Asked, predict_into

    return predict_into(locate(path), Asked(str(data), Path(out), label, group, every), checkpoint)


def export(
    path: str | Path | None = None,
    *,
    out: str | Path | None = None,
    opset: int | None = None,
    checkpoint: str = "best",
    imports: Sequence[str] = (),
    env: str | MakeEnv | None = None,
) -> ExportResult:
    """Export a run's checkpoint as one ONNX file, proven to act as the network.

    Args:
        path: a run; None: the newest.
        out: the file; None: `policy.onnx` in the run's folder.
        opset: ONNX opset, 18 to 21.
        checkpoint: "best", "last" or a step.
        imports: modules that register the environment.
        env: another environment id, or a function that makes one.

    Raises:
        ParityError: the graph does not act as the network.
        UsageError, RlseqError
    """
    found = locate(path)
    if found.run is None:
        raise UsageError(f"{found.name} is exported already ({found.path}); rlseq export takes a run.")
    run = found.run
    require("onnx", "exporting")
    require("onnxscript", "exporting")
    from rlseq.trained import export_network, export_record, open_trained, score_network, spec_with

    target = Path(out) if out is not None else run.exported
    if target.suffix != ".onnx":
        raise UsageError(f"--out {target}: the file's name must end in .onnx")
    if found.is_sequence():
        from rlseq.trained_sequence import export_sequence_again

        no_environment(found, {"--import": imports, "--env": env})
        return ExportResult(target, export_sequence_again(run, str(checkpoint), target, opset))
    opened = open_trained(run, checkpoint=str(checkpoint), imports=imports, env=env)
    score = score_network(opened.net, opened.spec, opened.make, opened.options)
    spec = spec_with(opened.spec, run, opened.checkpoint, score)
    report = export_network(opened.net, spec, target, opened.make, opset)
    summary = run.summary()
    if summary is not None and target.resolve() == run.exported.resolve():
        run.write("summary.json", {**summary, **export_record(run, opened.checkpoint, report)})
    return ExportResult(target, report)


def load(
    path: str | Path | None = None,
    *,
    imports: Sequence[str] = (),
    env: str | None = None,
    inputs: Sequence[str] | None = None,
    action_output: str | None = None,
) -> OnnxPolicy:
    """A policy to act with, without torch: `policy(observation)`, or `policy.act(...)` for many environments.

    Args:
        path: a run (its policy.onnx), a shipped agent or an `.onnx` file; None: the newest run.
        imports, env, inputs, action_output: as in `evaluate`; needed only for files that rlseq did not write.
    """
    from rlseq.player.onnx_policy import load_onnx

    env_id, more = split_id(env) if env is not None else (None, ())
    import_modules([*imports, *more])
    return load_onnx(locate(path).policy_file(), env_id=env_id, inputs=inputs, action_output=action_output)
