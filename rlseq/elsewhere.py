"""A trained sequence model measured on other data than its own: all of it, since nothing of it was trained on.

The model's own scaling, columns, labels and vocabulary are kept. Without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rlseq.errors import CorruptFile, UsageError, counted, did_you_mean
from rlseq.files import sha256_file
from rlseq.purposes import TEXT
from rlseq.seq.config import SeqOptions, options_of
from rlseq.seq.series.table import begun_table, listed, read_table
from rlseq.sequence import BYTES, SequenceSpec, Signature

if TYPE_CHECKING:
    from rlseq.seq.corpus import Corpus
    from rlseq.seq.tasks.task import Task

WHOLE = "the whole file"
MASE_NOTE = "mase: over the mean change from row to row of this file, as the training's is not known here"


def is_of_training(options: SeqOptions, data: str, lineage: Sequence[Mapping[str, Any]]) -> bool:
    """Whether data are those that a model was trained on, wherever they are now.

    Args:
        options: of the model's task.
        data: a file, of texts a folder too.
        lineage: of the model.

    Raises:
        UsageError: the model's data are none of a file, or this one cannot be read.
    """
    from rlseq.seq.tasks.table import TASKS

    known = next((step.get("data_sha256") for step in reversed(lineage) if step.get("step") == "train"), None)
    if options.task == TEXT:
        from rlseq.seq.corpus import read_corpus

        return read_corpus(data, options.pattern, options.unit).sha256 == known
    kinds = TASKS[options.task].kinds
    if "forecast" not in kinds and options.label is None:
        what = "draws its questions itself" if "tokens" in kinds else "computes its series itself"
        raise UsageError(f"--data {data}: the task {options.task} {what}, and takes no file: leave it out.")
    with begun_table(data):  # says what is wrong with a file that cannot be read
        pass
    return sha256_file(Path(data)) == known


def task_elsewhere(spec: SequenceSpec, data: str, where: object) -> Task:
    """A model's task on other data, all of which is for validation.

    Args:
        spec: the model's description.
        data: as in `is_of_training`.
        where: the model, for messages.

    Raises:
        UsageError: other columns than the model reads, labels or characters that it has never seen, or too few rows.
        CorruptFile: the description makes no sense.
    """
    from rlseq.seq.tasks.table import TASKS

    options = options_of(spec, where, data)
    if spec.signature.kind not in TASKS[spec.task].kinds or (spec.signature.reads_tokens and spec.tokenizer is None):
        raise CorruptFile(f"{where} describes a task that there is not: {spec.task} of kind {spec.signature.kind}.")
    if spec.task == TEXT:
        return _text(spec, options, data)
    return (
        _classes(spec.signature, options, data) if spec.signature.kind == "classify" else _forecast(spec, options, data)
    )


def note_of(task: Task, *, other: bool) -> dict[str, str]:
    """What is to be said of a task's metrics, under `note` if there is anything.

    Args:
        task: that was measured.
        other: whether on other data than its own.
    """
    if task.signature.kind != "forecast":
        return {}
    from rlseq.seq.tasks.forecast import STANDS_STILL

    notes = [*([MASE_NOTE] if other else []), *([] if "naive_ratio" in task.metrics else [STANDS_STILL])]
    return {"note": "; ".join(notes)} if notes else {}


def _forecast(spec: SequenceSpec, options: SeqOptions, data: str) -> Task:
    from rlseq.seq.tasks.forecast import ForecastTask, Multivariate

    signature = spec.signature
    with begun_table(data) as file:
        check_there(signature.features, file.names, data, "the model reads")
        table = read_table(file, only=signature.features)
    known = msgspec.structs.replace(options, context=spec.context, horizon=signature.horizon)
    rows = f"{data}, all {counted(len(table.numbers), 'row')}"
    series = Multivariate(table.numbers, signature.features, table.sha256, rows)
    return ForecastTask(known, series, signature.features[signature.target], spec.task, signature)


def _classes(signature: Signature, options: SeqOptions, data: str) -> Task:
    from rlseq.seq.series.labelled import read_labelled
    from rlseq.seq.tasks.classify import ClassifyTask, Split

    assert options.label is not None, "waveforms were refused"
    with begun_table(data) as file:
        header = file.names
    check_there([options.label], header, data, "the label of each series stands in")
    if options.group is not None:
        check_there([options.group], header, data, "which rows are one series is told by")
    columns = signature.columns if options.group is None else signature.features
    check_there(columns, header, data, "the model reads")
    found = read_labelled(data, options.label, options.group, columns)
    strange = [name for name in found.classes if name not in signature.classes]
    if strange:
        raise UsageError(
            f"{data}: the model has never seen the {options.label} {', '.join(map(repr, strange[:10]))}; it knows "
            f"{listed(signature.classes)}.{did_you_mean(strange[0], signature.classes)} Take those rows out."
        )
    index = np.array([signature.classes.index(name) for name in found.classes])
    whole = np.arange(len(found.labels))
    series = found._replace(labels=index[found.labels], classes=signature.classes)
    return ClassifyTask(options, series, Split(whole, whole))


def _text(spec: SequenceSpec, options: SeqOptions, data: str) -> Task:
    from rlseq.seq.corpus import read_corpus
    from rlseq.seq.tasks.text import TextTask

    assert spec.tokenizer is not None
    corpus = read_corpus(data, options.pattern, spec.tokenizer.unit)
    known = msgspec.structs.replace(options, context=spec.context)
    return TextTask(known, corpus if spec.tokenizer.unit == "byte" else _translated(corpus, spec), whole=True)


def _translated(corpus: Corpus, spec: SequenceSpec) -> Corpus:
    """A text in the tokens of a model.

    Raises:
        UsageError: it holds characters that the model has never seen.
    """
    assert spec.tokenizer is not None
    try:
        theirs = spec.tokenizer.encode(corpus.tokenizer.characters).astype("u1" if spec.vocabulary <= BYTES else "u2")
    except UsageError as error:
        raise UsageError(f"{corpus.description}: {error}") from None
    return corpus._replace(tokenizer=spec.tokenizer, tokens=theirs[corpus.tokens])


def check_there(names: Sequence[str], header: Sequence[str], data: str, why: str) -> None:
    """Refuse a file without some columns.

    Raises:
        UsageError: they are named.
    """
    missing = [name for name in names if name not in header]
    if missing:
        raise UsageError(
            f"{data} lacks the column{'s' * (len(missing) > 1)} {listed(missing)}: {why} {listed(names)}, and the file "
            f"has {listed(header)}.{did_you_mean(missing[0], header)}"
        )
