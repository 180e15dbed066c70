"""The command line, `rlseq`: its commands, its exit codes, and what a mistake looks like.

Exit codes: 0 done, 1 failed, 2 wrongly typed, 130 and 143 stopped by Ctrl-C and SIGTERM. Every command is a thin verb
over `rlseq.pipeline`; nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rlseq.cli import (
    bench,
    board,
    card,
    compare,
    export,
    generate,
    inspect,
    listing,
    options,
    play,
    predict,
    train,
    worker,
)
from rlseq.cli.output import say, write_json
from rlseq.errors import Elsewhere, Interrupted, RlseqError, did_you_mean

# The base of what typer raises for wrong usage; typer does not export it, and has moved it between versions.
_TyperError: Any = typer.BadParameter.__mro__[2]

# A process that ends because of another one waits so long before it leaves: once one has left, torchrun's agent ends
# the rest, and until then the one that knows what happened must have said so, and process 0 must have saved.
WORD_SECONDS = 1.0


class App(TyperGroup):
    """The top command; every error of every command ends here."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order in which they are used."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: name != "train")

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; leaves with its exit code, or returns it if not `standalone_mode`."""
        typed = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(
                args=args,
                prog_name=prog_name,
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                obj=typed,  # --nproc hands these words on
                **extra,
            )
            code = code if isinstance(code, int) else 0
            if code == 130:  # typer's word for a KeyboardInterrupt
                _tell("stopped by Ctrl-C.", code, typed, kind="Interrupted")
            sys.stdout.flush()
        except BrokenPipeError:
            code = _reader_left()
        except Exception as error:
            code = report(error, typed)
        if standalone_mode:
            sys.exit(code)
        return code


def report(error: Exception, typed: Sequence[str]) -> int:
    """Say what went wrong.

    Args:
        error: what a command raised.
        typed: the words of the command line.

    Returns:
        The exit code.
    """
    if isinstance(error, (Elsewhere, Interrupted)):
        code = _tell(str(error), error.exit_code, typed, kind=_kind(error))
        if isinstance(error, Elsewhere) or _process(typed) > 0:
            time.sleep(WORD_SECONDS)
        return code
    if isinstance(error, RlseqError):
        return _tell(str(error), error.exit_code, typed)
    if isinstance(error, _TyperError):
        return _wrongly_typed(error, typed)
    if isinstance(error, typer.Abort):
        return _tell("there is nothing to read the answer from.", 1, typed)
    # Nothing a user typed should lead here.
    say("".join(traceback.format_exception(error)).rstrip())
    return _tell(
        f"unexpected {type(error).__name__}: {error}. This is a bug of rlseq; the traceback is above.", 1, typed
    )


def _wrongly_typed(error: Any, typed: Sequence[str]) -> int:
    code: int = error.exit_code
    if _process(typed) > 0:  # all processes were given the same words
        return code
    _name_value(error, typed)
    if error.format_message():  # empty where only the help was shown
        error.show()
    if "--json" in typed:
        write_json({"error": error.format_message(), "exit_code": code})
    return code


def _name_value(error: Any, typed: Sequence[str]) -> None:
    """Add the value to typer's "Invalid value for '--steps': not a valid integer", and the nearest of those there are.

    Typer has another library check values, which begins what it says with "Value error, ".
    """
    error.message = str(getattr(error, "message", "")).removeprefix("Value error, ")
    choice = re.match("'(.*)' is not one of (.*)", error.message)
    hint = did_you_mean(choice[1], re.findall("'([^']+)'", choice[2])) if choice else ""
    flags = getattr(getattr(error, "param", None), "opts", ())
    words = iter(typed)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in flags and flag.startswith("-"):
            error.message += f" (typed: {value if equals else next(words, '')})"
            break
    error.message += hint


def _tell(message: str, code: int, typed: Sequence[str], kind: str = "Error") -> int:
    """Say it, unless another process does: the one that started this one, or the one where it happened."""
    process = _process(typed)
    if worker.hand_over({"error": message, "exit_code": code, "kind": kind}):
        return code
    if process > 0 and kind != "Error":
        return code
    label = "Interrupted" if kind == "Interrupted" else "Error"
    say(message, "yellow" if kind == "Interrupted" else "red", label if process == 0 else f"process {process}: {label}")
    if "--json" in typed and process == 0:
        write_json({"error": message, "exit_code": code})
    return code


def _kind(error: Elsewhere | Interrupted) -> str:
    return "Interrupted" if isinstance(error, Interrupted) else Elsewhere.__name__


def _process(typed: Sequence[str]) -> int:
    """Which process of a training this is; what is no training has one only."""
    return worker.rank() if typed[:1] == ["train"] else 0


def _reader_left() -> int:
    """Whoever read stdout has closed it (`rlseq list envs | head -1`): say nothing, not even when Python ends."""
    with contextlib.suppress(OSError):  # it may be no real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _version(wanted: bool) -> None:
    if wanted:
        from rlseq.version import __version__

        typer.echo(f"rlseq {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="rlseq",
    cls=App,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _rlseq(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train agents and sequence models, and ship each as one small ONNX file that is proven to act like it.

    Examples:

      rlseq train dqn CartPole-v1     train; the run already holds policy.onnx
      rlseq play                      play the newest run
      rlseq play cartpole-dqn         play an agent that comes with rlseq
      rlseq eval --episodes 100       score it
      rlseq train seq                 train a language model
      rlseq generate                  let it write
      rlseq board                     look at the curves

    PATH is the same everywhere: a run (folder or name), a shipped agent's name,
    or an .onnx file; left out, the newest run. Runs are in the folder runs, or
    where the environment variable RLSEQ_RUNS says.
    """


app.add_typer(train.app, name="train")
app.command("eval")(play.evaluate)
app.command("play")(play.play)
app.command("generate")(generate.generate)
app.command("predict")(predict.predict)
app.command("export")(export.export)
app.command("info")(inspect.info)
app.command("compare")(compare.compare)
app.command("list")(listing.list_all)
app.command("options")(options.show)
app.command("card")(card.card)
app.command("board")(board.board)
app.command("bench")(bench.bench)


def main() -> None:
    """The console script."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # a terminal that cannot show a sign shows a question mark
        worker.follow_launcher()
        app(prog_name="rlseq")
    except KeyboardInterrupt:  # before anything began, or one more Ctrl-C while the first one was being told
        sys.exit(130)


if __name__ == "__main__":
    main()
