"""What sequence tasks are for, and how that is said to people; a task is one line here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

TEXT = "text"  # the task of whatever does not name one: there was no other once


class Purpose(NamedTuple):
    """What models of a task do.

    Attributes:
        targets: what is predicted, and counted.
        one: a single use of a model.
        uses: several of them.
        split: after the data, what of them is measured on, `{part}` being `seq.validation` in percent.
        use: the command that uses a model, `{path}` being it and `{question}` one that it may be asked.
        windows: what else is to be said of the targets, `{context}` being the places of a sequence.
        sample: what stands above examples of a validation; "": the text that a model wrote says it itself.
    """

    targets: str
    one: str
    uses: str
    split: str
    use: str
    windows: str = ""
    sample: str = ""


AT_ITS_END = ", the last {part} % of it for validation"
TEXTS = Purpose(
    targets="tokens",
    one="a token",
    uses="tokens",
    split=AT_ITS_END,
    windows=" in windows of {context}",
    use="rlseq generate {path}",
)
QUESTIONS = Purpose(
    targets="tokens of answers",
    one="an answer",
    uses="answers",
    split="; {part} % of all questions are never trained on, and it is measured on such. What is measured at 2x are "
    "questions twice as long as the longest that it was trained on",
    sample="What it answers",
    use="rlseq generate {path} --prompt {question}",
)
CLASSES = Purpose(
    targets="series",
    one="a series",
    uses="series",
    split="; the series for validation are never trained on",
    sample="The class of a series, and what it says",
    use="rlseq predict {path} --data FILE.csv --out classes.csv",
)
FORECASTS = Purpose(
    targets="values",
    one="a forecast",
    uses="forecasts",
    split=AT_ITS_END,
    windows=" forecast from windows of {context}",
    sample="What followed, and what it forecast",
    use="rlseq predict {path} --data FILE.csv --out forecast.csv",
)
PURPOSES = {
    TEXT: TEXTS,
    "copy": QUESTIONS,
    "reverse": QUESTIONS,
    "sort": QUESTIONS,
    "addition": QUESTIONS,
    "selective-copy": QUESTIONS,
    "induction": QUESTIONS,
    "recall": QUESTIONS,
    "classify": CLASSES,
    "waveforms": CLASSES,
    "forecast": FORECASTS,
    "mackey-glass": FORECASTS,
    "lorenz": FORECASTS,
}


def purpose_of(values: Mapping[str, Any]) -> Purpose:
    """The purpose of a sequence model, by its summary, evaluation, card or description.

    One whose task is not known here, because the file is another tool's or was changed, is of text.
    """
    return PURPOSES.get(str(values.get("task", TEXT)), TEXTS)


def use_of(task: str, path: str | Path) -> str:
    """The command that uses a model of a task, as it is to be typed but for what stands in capitals.

    Args:
        task: as in `rlseq list tasks`.
        path: of the model, or its name.
    """
    return purpose_of({"task": task}).use.format(path=shlex.quote(str(path)), question="QUESTION")
