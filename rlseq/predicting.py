"""What a sequence model says of new data: a CSV file, or a text of questions, in; a CSV file out.

A model in one .onnx file needs no torch for it.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlseq.elsewhere import check_there
from rlseq.errors import UsageError, check_name, counted, did_you_mean
from rlseq.files import write_bytes
from rlseq.locate import Located
from rlseq.questions import answered
from rlseq.seq.answers import at_last, in_quantiles, rows_at_once
from rlseq.seq.series.labelled import VALUE, check_numbers, groups_of, in_series, labels_of
from rlseq.seq.series.ragged import Ragged, bucket_of, padded_lengths
from rlseq.seq.series.table import Table, begun_table, check_column, listed, read_table
from rlseq.sequence import SequenceSpec, Signature
from rlseq.trained_sequence import Model, opened_model

SHAPES = 4  # padded lengths of one file
MEDIAN = 0.5
READS = "the model reads"
STDOUT = "-"  # as a file's name


class Asked(NamedTuple):
    """What is to be predicted; see `rlseq.pipeline.predict`."""

    data: str
    out: Path
    label: str | None = None
    group: str | None = None
    every: int | None = None


class Predicted(NamedTuple):
    """What was predicted.

    Attributes:
        header: names of the columns.
        rows: of the file that is written.
        about: what else there is to say, by name.
    """

    header: list[str]
    rows: list[list[str]]
    about: dict[str, Any]


def predict_into(found: Located, asked: Asked, checkpoint: str | None) -> dict[str, Any]:
    """Predict, and write it down; see `rlseq.pipeline.predict`."""
    check_out(asked, found)
    model = opened_model(found, checkpoint)
    signature = model.spec.signature
    if signature.kind == "classify":
        done = classified(model, asked)
    elif signature.kind == "forecast":
        done = forecast(model, asked)
    else:
        refuse("answers questions", label=asked.label, group=asked.group, every=asked.every)
        done = Predicted(["question", "answer"], list(map(list, answered(model, asked.data))), {})
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(done.header)
    writer.writerows(done.rows)
    _write(asked.out, file.getvalue().encode())
    return {
        "kind": signature.kind,
        "predictions": len(done.rows),
        **done.about,
        "data": asked.data,
        "out": str(asked.out),
        "path": str(found.path),
    }


def _write(out: Path, data: bytes) -> None:
    """The bytes of a CSV file, UTF-8 wherever they go."""
    if str(out) != STDOUT:
        write_bytes(out, data)
        return
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:  # a notebook's
        sys.stdout.write(data.decode())
        return
    sys.stdout.flush()
    binary.write(data)
    binary.flush()


def refuse(does: str, **flags: Any) -> None:
    """Refuse flags that mean nothing for a model.

    Raises:
        UsageError: one is given.
    """
    for flag, value in flags.items():
        if value is not None:
            raise UsageError(f"--{flag} {value} means nothing for this model, which {does}: leave it out.")


def check_out(asked: Asked, found: Located) -> None:
    """Refuse a result that could not be written in the end, or would destroy something.

    Raises:
        UsageError
    """
    out = asked.out
    if str(out) == STDOUT:
        return
    check_name(out, "the file --out")
    if not out.name or out.is_dir():
        raise UsageError(f"--out {str(out)!r} is a folder: give the name of a CSV file.")
    if not out.parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {out.parent}. Make it first, or give another path.")
    for what, path in (("data", Path(asked.data)), ("model", found.path)):
        if "\0" not in str(path) and path.exists() and out.exists() and out.samefile(path):
            raise UsageError(f"--out {out} is the {what} itself, which would be lost: give another name.")


def classified(model: Model, asked: Asked) -> Predicted:
    """The class of each series, and the probability of every class.

    Raises:
        UsageError: unfit data, other columns than the model's, or a label that it does not know.
    """
    refuse("tells classes", every=asked.every)
    signature = model.spec.signature
    with begun_table(asked.data) as file:
        header = file.names
        label = _column(model, asked, "label", asked.label, header)
        group = _column(model, asked, "group", asked.group, header)
        others = [name for name in (label, group) if name is not None]
        only = _features(signature, group, header, asked.data)
        table = read_table(file, texts=others, only=only, fix="--label names that of the labels")
    check_numbers(table, listed(others))
    series = in_series(table, group)
    truth = None if label is None else _known_labels(table, label, group, signature)
    logits_NK = np.empty((len(series.lengths), len(signature.classes)))
    for which, outputs_BK in _outputs(model, series):
        logits_NK[which] = outputs_BK
    share_NK = np.exp(logits_NK - logits_NK.max(1, keepdims=True))
    share_NK /= share_NK.sum(1, keepdims=True)
    best = logits_NK.argmax(1)
    names = groups_of(table, group).names if group is not None else [str(row + 1) for row in range(len(best))]
    rows = []
    for number, name in enumerate(names):
        told = [] if truth is None else [truth[number]]
        rows.append([name, *told, signature.classes[best[number]], *map(_digits, share_NK[number])])
    first = group if group is not None else "row"
    columns = [first, *([] if label is None else [label]), "predicted", *(f"p_{name}" for name in signature.classes)]
    about = unread(header, [*others, *table.names])
    if truth is not None:
        about["accuracy"] = sum(row[1] == row[2] for row in rows) / len(rows)
    notes = _notes(model.spec, series.lengths, group, by_name=only is not None)
    return Predicted(columns, rows, {**about, **({"note": "; ".join(notes)} if notes else {})})


def _notes(spec: SequenceSpec, lengths: np.ndarray, group: str | None, *, by_name: bool) -> list[str]:
    """What may be wrong with the series: columns of other names, or lengths that the model does not know."""
    notes, longest, context, known = [], lengths.max(), spec.context, spec.signature.columns
    if not by_name and known:
        notes.append(
            f"the columns are not called as in training ({listed(known)}): all of them are read, in the "
            "order of the file"
        )
    if longest == 1 < context:
        notes.append(
            f"each row is read as a series of one value, and the model was trained on series of up to {context}: if "
            "the rows are one series, write them as one row"
            if group is None
            else f"each series is a single row, and the model was trained on series of up to {context}"
        )
    if longest > context:
        notes.append(f"series of up to {longest} values; the longest that the model was trained on has {context}")
    return notes


def _column(model: Model, asked: Asked, option: str, typed: str | None, header: Sequence[str]) -> str | None:
    """The column of labels or groups: as typed, or as in training if the file has it."""
    if typed is not None:
        check_column(typed, header, asked.data, f"--{option}")
        return typed
    trained = model.spec.task_options.get(option)
    return trained if isinstance(trained, str) and trained in header else None


def _features(signature: Signature, group: str | None, header: Sequence[str], data: str) -> Sequence[str] | None:
    """The columns that hold a classifier's series; None: all that there are, whatever they are called.

    Raises:
        UsageError: some of them are not there, or nothing says which rows are one series.
    """
    if group is not None:
        check_there(signature.features, header, data, READS)
        return signature.features
    if signature.features != (VALUE,):
        raise UsageError(
            f"the model reads series of {listed(signature.features)}, row by row, and {data} does not say which rows "
            "are one series: name the column that does, --group COLUMN"
        )
    if set(signature.columns).isdisjoint(header):
        return None
    # Without those that are missing, the others would stand for other times than in training.
    check_there(signature.columns, header, data, READS)
    return signature.columns


def unread(header: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
    """What is to be said of columns that the model does not read."""
    more = [name for name in header if name not in known]
    return {"unread_columns": more} if more else {}


def _known_labels(table: Table, label: str, group: str | None, signature: Signature) -> list[str]:
    """The label of each series.

    Raises:
        UsageError: the model knows no such label.
    """
    for line, text in zip(table.lines.tolist(), table.texts[label], strict=True):
        if text not in signature.classes:
            raise UsageError(
                f"{table.path}, line {line}: the model has never seen the {label} {text!r}; it knows "
                f"{listed(signature.classes)}.{did_you_mean(text, signature.classes)}"
            )
    return table.texts[label] if group is None else labels_of(table, label, group)


def _outputs(model: Model, series: Ragged) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices `[B]` of series, and what the model says of each, `[B, N]`; in batches of few lengths."""
    lengths = padded_lengths(series.lengths, SHAPES)
    bucket = bucket_of(series.lengths, lengths)
    for number, length in enumerate(lengths):
        which = np.flatnonzero(bucket == number)
        step = rows_at_once(length)
        for first in range(0, len(which), step):
            rows = which[first : first + step]
            padded = series.padded(rows, length)
            yield rows, at_last(model.whole(padded.values, padded.given), padded.given)


def forecast(model: Model, asked: Asked) -> Predicted:
    """What follows the last rows; or with `every`, what follows each so-manieth.

    Raises:
        UsageError: unfit data, other columns than the model's, or fewer rows than it reads.
    """
    refuse("forecasts", label=asked.label, group=asked.group)
    spec = model.spec
    signature, context = spec.signature, spec.context
    with begun_table(asked.data) as file:
        check_there(signature.features, file.names, asked.data, READS)
        table = read_table(file, only=signature.features)
    values, num = table.numbers.astype(np.float32), len(table.numbers)
    if num < context:
        raise UsageError(
            f"{asked.data} has {counted(num, 'row')}, and the model reads {context} before it forecasts: give as many."
        )
    # The last forecast is always that from the end.
    ends = np.arange(num, context - 1, -(asked.every or num))[::-1]
    target, rows = signature.features[signature.target], []
    for first in range(0, len(ends), rows_at_once(context)):
        some = ends[first : first + rows_at_once(context)]
        outputs = model.whole(values[some[:, None] + np.arange(-context, 0)])
        ahead = in_quantiles(at_last(outputs, None), signature).reshape(len(some), signature.horizon, -1)
        for end, steps in zip(some.tolist(), ahead, strict=True):
            rows += [[str(end), str(step), *_forecast_cells(cells, signature)] for step, cells in enumerate(steps, 1)]
    columns = ["after_row", "step", target, *(f"{target}_q{quantile:g}" for quantile in signature.quantiles)]
    about = {"windows": len(ends), "horizon": signature.horizon, "target": target}
    return Predicted(columns, rows, {**about, **unread(file.names, signature.features)})


def _forecast_cells(cells: np.ndarray, signature: Signature) -> list[str]:
    """The forecast, and the quantiles if there are any, of which the one nearest to the median is the forecast."""
    if not signature.quantiles:
        return [_digits(cells[0])]
    median = min(range(len(cells)), key=lambda index: abs(signature.quantiles[index] - MEDIAN))
    return [_digits(cells[median]), *map(_digits, cells)]


def _digits(value: float) -> str:
    """As many as float32 has."""
    return f"{value:.7g}"
