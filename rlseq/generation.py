"""A sequence model made to write or to be scored, for `rlseq generate` and `rlseq eval`.

torch is needed only where a run's network is asked for.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from rlseq.elsewhere import WHOLE, is_of_training, note_of, task_elsewhere
from rlseq.errors import CorruptFile, RlseqError, UsageError
from rlseq.locate import Located
from rlseq.purposes import use_of
from rlseq.questions import asks, check_question, example
from rlseq.resolve import read_sequence_options
from rlseq.sequence import SequenceSpec, Signature, Tokenizer
from rlseq.trained_sequence import Model, opened_model

if TYPE_CHECKING:
    from rlseq.player.sequence import OnnxSequence
    from rlseq.seq.tasks.task import Task

LINE_BREAK = "\n"
SAMPLE_TOKENS = 300
MOST_SYMBOLS = 2**27  # of all questions that a file may ask to be measured on
SAME = 1e-6  # standard deviations


class Wish(NamedTuple):
    """What is to be written; see `rlseq.pipeline.generate`."""

    prompt: str | None
    tokens: int
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int


def write(found: Located, wish: Wish, checkpoint: str | None, on_text: Callable[[str], None] | None) -> dict[str, Any]:
    """Write on from a prompt; see `rlseq.pipeline.generate`."""
    from rlseq.player.generate import asked, generate
    from rlseq.player.sampling import Sampling

    stepper = opened_model(found, checkpoint)
    temperature = wish.temperature
    if temperature is None:
        temperature = 0.0 if stepper.spec.signature.start is not None or asks(stepper.spec) else 1.0
    sampling = Sampling(temperature, wish.top_k, wish.top_p)
    tokenizer = _tokenizer(stepper.spec, found)
    prompt = _default_prompt(stepper.spec, tokenizer, found) if wish.prompt is None else wish.prompt
    check_question(stepper.spec, prompt, "the prompt", found.name)
    tokens = tokenizer.encode(prompt)
    if not len(tokens):
        raise UsageError("the prompt is empty: give at least one character, or leave --prompt out.")
    stream, made, texts = tokenizer.stream(), 0, []
    # Without an end a question is a row that a query ends, and its answer one symbol.
    most = 1 if stepper.spec.signature.end is None and asks(stepper.spec) else wish.tokens
    writing = generate(stepper, tokens, most, sampling, np.random.default_rng(wish.seed))
    prompt = asked(stepper.spec.signature, prompt)
    if on_text is not None:
        on_text(prompt)
    started = time.perf_counter()
    for token in writing:
        made += 1
        texts.append(stream(token))
        if on_text is not None:
            on_text(texts[-1])
    seconds = max(1e-9, time.perf_counter() - started)
    return {
        "prompt": prompt,
        "text": "".join(texts),
        "tokens": made,
        "tokens_per_second": made / seconds,
        "temperature": temperature,
        "top_k": wish.top_k,
        "top_p": wish.top_p,
        "seed": wish.seed,
        "path": str(found.path),
    }


def _tokenizer(spec: SequenceSpec, found: Located) -> Tokenizer:
    if not spec.signature.reads_tokens:
        raise UsageError(
            f"{found.name} was trained on the task {spec.task}: it reads numbers and writes no text. Let it answer: "
            f"{use_of(spec.task, found.name)}"
        )
    if spec.tokenizer is None:
        raise RlseqError(f"{found.name} was trained on the task {spec.task}, which has no text to generate.")
    return spec.tokenizer


def _default_prompt(spec: SequenceSpec, tokenizer: Tokenizer, found: Located) -> str:
    if spec.signature.start is not None or asks(spec):
        right = example(spec, found.name)
        raise UsageError(
            f"{found.name} answers questions: ask one, --prompt {shlex.quote(right) if right else 'QUESTION'}"
        )
    known = tokenizer.unit == "byte" or LINE_BREAK in tokenizer.characters
    return LINE_BREAK if known else tokenizer.characters[0]


def evaluate_sequence(found: Located, checkpoint: str, data: str | None) -> dict[str, Any]:
    """The task's metrics on the whole validation split: of a run with its network, of a file with ONNX Runtime.

    On other data than those of training a model is measured on all of them, a run by its .onnx file or, of another
    checkpoint than the best, by its network.
    """
    if data is not None and not _of_training(found, data):
        model = opened_model(found, None if checkpoint == "best" else checkpoint)
        task = task_elsewhere(model.spec, data, found.name)
        return {**_scored(model, task), "measured_on": WHOLE, **note_of(task, other=True)}
    if found.run is not None:
        from rlseq.trained_sequence import open_sequence, score_sequence

        opened = open_sequence(found.run, checkpoint=checkpoint, data=data)
        score, shows = score_sequence(opened.net, opened.task, opened.options)
        told = {"sample": shows.text, "data": opened.task.description, **note_of(opened.task, other=False)}
        return {"task": opened.task.name, **score, **told}
    if checkpoint != "best":
        raise UsageError(f"--checkpoint {checkpoint}: {found.name} is one exported model; only a run has checkpoints.")
    from rlseq.player.sequence import load_sequence

    model = load_sequence(found.path)
    task = _task_of(model.spec, found.path, data)
    return {**_scored(model, task, _sample(model, task)), **note_of(task, other=False)}


def _of_training(found: Located, data: str) -> bool:
    if found.run is not None:
        return is_of_training(read_sequence_options(found.run).seq, data, found.run.lineage())
    from rlseq.player.sequence import load_sequence
    from rlseq.seq.config import options_of

    spec = load_sequence(found.path).spec
    return is_of_training(options_of(spec, found.path), data, spec.lineage)


def _scored(model: Model, task: Task, sample: str = "") -> dict[str, Any]:
    from rlseq.seq.answers import answers_of, rows_at_once
    from rlseq.seq.tasks.task import Shown

    sums, first = np.zeros(0), None
    for batch in task.validation(rows_at_once(task.context)):
        answers = answers_of(model.whole(batch.inputs, batch.given, batch.source), batch, task.signature)
        tally = task.tally(answers, batch)
        sums, first = tally if first is None else sums + tally, first or Shown(batch, answers)
    assert first is not None, "a validation split is never empty"
    sample = sample or task.examples(first)
    return {
        "task": task.name,
        **task.metrics_of(sums, sample),
        "tokens": int(sums[0]),
        "sample": sample,
        "data": task.description,
    }


def _task_of(spec: SequenceSpec, path: Path, data: str | None) -> Task:
    """The task that a file was trained on.

    Raises:
        UsageError: with this data it is another one.
    """
    from rlseq.seq.config import options_of
    from rlseq.seq.tasks.table import TASKS, check_taken

    options = options_of(spec, path, data)
    entry = TASKS[spec.task]
    if spec.signature.kind not in entry.kinds:
        raise CorruptFile(f"{path} describes a task that there is not: {spec.task} of kind {spec.signature.kind}.")
    longest = max(options.length or 1, options.pairs or 1)
    if options.examples * longest > MOST_SYMBOLS:
        raise CorruptFile(
            f"{path} describes a task of {options.examples} questions of {longest} symbols: that takes more memory "
            "than a model's evaluation may."
        )
    check_taken(options)
    task = entry.make(options, spec.signature.kind)
    if not _same(task.signature, spec.signature):
        what = "characters" if spec.signature.reads_tokens else "columns, labels or values"
        raise UsageError(
            f"{task.description} has other {what} than the data of {path}: give the data that it was trained on, "
            "--data PATH"
        )
    return task


def _same(task: Signature, model: Signature) -> bool:
    """Whether a task is a model's; means that another processor summed in another order are the same."""
    plain = {"shift": (), "scale": ()}
    if msgspec.structs.replace(task, **plain) != msgspec.structs.replace(model, **plain):
        return False
    shift = np.subtract(task.shift, model.shift) / np.asarray(model.scale)
    return bool(np.all(np.abs(shift) < SAME) and np.allclose(task.scale, model.scale, rtol=SAME, atol=0.0))


def _sample(model: OnnxSequence, task: Task) -> str:
    from rlseq.player.generate import asked, generate
    from rlseq.player.sampling import Sampling

    tokenizer = task.signature.tokenizer
    if tokenizer is None or not task.prompt():
        return ""
    prompt = tokenizer.encode(task.prompt())
    made = list(generate(model, prompt, SAMPLE_TOKENS, Sampling(), np.random.default_rng(0)))
    return asked(task.signature, task.prompt()) + tokenizer.decode(np.array(made, np.int64))
