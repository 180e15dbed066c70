"""What the tests of the generated tasks share."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask
from rlseq.seq.tasks.table import TASKS
from rlseq.seq.tasks.task import Answers
from rlseq.sequence import Kind

KINDS: tuple[Kind, ...] = ("tokens", "translate")


def made(name: str, kind: Kind, **options: Any) -> GeneratedTask:
    """A task of the table."""
    return cast(GeneratedTask, TASKS[name].make(SeqOptions(task=cast(Any, name), **options), kind))


def pairs_of(task: GeneratedTask, batch: TokenBatch[np.ndarray]) -> list[tuple[str, str]]:
    """Question and targets of each row, as texts; taken apart by the masks alone."""
    assert task.signature.tokenizer is not None and batch.mask is not None
    decode, pairs = task.signature.tokenizer.decode, []
    for row, mask in enumerate(batch.mask):
        answer = decode(batch.targets[row][mask])
        if batch.source is not None:
            assert batch.given is not None
            pairs.append((decode(batch.source[row][batch.given[row]]), answer))
        else:
            question = batch.inputs[row]
            pairs.append((decode(question if task.signature.start is None else question[: mask.argmax() + 1]), answer))
    return pairs


def sampled(task: GeneratedTask, num: int = 200, seed: int = 0) -> list[tuple[str, str]]:
    """Training questions and their answers, as texts; the start token behind the former is left out."""
    batch = task.sample(np.random.default_rng(seed), num)
    end = task.signature.end
    pairs = []
    for question, answer in pairs_of(task, batch):
        if end is not None:
            assert answer[-1] == "\n"
            answer = answer[:-1]
        if task.signature.kind == "tokens" and task.signature.start is not None:
            assert question[-1] == "="
            question = question[:-1]
        pairs.append((question, answer))
    return pairs


def perfect(batch: TokenBatch[np.ndarray]) -> Answers:
    """The answers of a model that is always right."""
    return Answers(np.zeros(batch.targets.shape, np.float32), batch.targets.copy())
