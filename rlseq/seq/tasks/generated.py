"""Generated tasks: a function draws questions, another answers them; the rest is the same for all.

Lengths run from `seq.min_length` to `seq.length`. A batch's rows are of one of `seq.buckets` ranges of lengths, drawn
with the share it has of all lengths, and padded to the longest of the range: there are as many shapes as ranges and
little padding, and over many batches every length is equally frequent.

Measured are `seq.examples` questions of the training length and as many of twice of it, where the model was never
trained. **Exact match** is the share of questions with every token of the answer and its end right, given the right
ones before. For an answer that is written greedily, token by token, that is the same: as long as all are right, what
the model has written is what was given here; and the first wrong one is wrong here too.

Shapes: B rows, Q symbols of a question, A of an answer, T tokens of a row.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import string
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rlseq.errors import UsageError
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.holdout import Key, Questions, training_questions, validation_questions
from rlseq.seq.tasks.layout import Layout, width
from rlseq.seq.tasks.task import ALL, Answers, Direction, Showing, Shown
from rlseq.sequence import Kind, Signature, Tokenizer

START, END = "=", "\n"
SHOWN = 8  # examples
PARTS = ("", "_2x")  # at the training length, and at twice of it
COMMON = string.ascii_lowercase + string.ascii_uppercase + string.digits
RARE, MOST = 0x4E00, 20_000  # from this character on there are so many that can be seen


class Problem(NamedTuple):
    """What makes a generated task.

    Attributes:
        name: as in `seq.task`.
        about: what is asked, for `description`.
        alphabet: a character for each symbol, in their order. Symbol `len(alphabet)` is the start token.
        length: of a question, if `seq.length` is none.
        shortest: the smallest length there is.
        questions: draws questions of a length.
        answers: `[B, Q] -> [B, A]`, what is to be answered.
        key: what of a question decides whether it is held out.
        places: see `Layout`.
    """

    name: str
    about: str
    alphabet: str
    length: int
    shortest: int
    questions: Questions
    answers: Callable[[np.ndarray], np.ndarray]
    key: Key = np.asarray
    places: Callable[[np.ndarray], np.ndarray] | None = None


def alphabet_of(num: int) -> str:
    """Characters for `num` symbols: letters and digits while they last.

    Raises:
        UsageError: there are not so many, or fewer than two.
    """
    if not 2 <= num <= MOST:
        raise UsageError(f"seq.symbols = {num} must be from 2 to {MOST}")
    return COMMON[:num] if num <= len(COMMON) else "".join(map(chr, range(RARE, RARE + num)))


def uniform(num_symbols: int) -> Questions:
    """Questions of as many symbols as their length says, each equally likely."""
    return lambda rng, num, length: rng.integers(0, num_symbols, size=(num, length))


class GeneratedTask(Showing):
    """A task whose questions are drawn as they are needed.

    Args:
        problem: its questions and answers.
        options: their lengths, and how many are measured.
        kind: `tokens` or `translate`.

    Attributes: see `rlseq.seq.tasks.task.Task`.

    Raises:
        UsageError: lengths that do not fit, or so few questions that none is held out.
    """

    predictions_per_epoch = None
    metrics: Mapping[str, Direction] = {
        "exact_match": "higher",
        "token_accuracy": "higher",
        "loss": "lower",
        "exact_match_2x": "higher",
        "token_accuracy_2x": "higher",
    }

    def __init__(self, problem: Problem, options: SeqOptions, kind: Kind) -> None:
        self.name, self._problem, self._share = problem.name, problem, options.validation
        self._lengths = _lengths(problem, options)
        shortest, longest = self._lengths
        self._ranges = ranges(shortest, longest, options.buckets)
        tokenizer = Tokenizer(unit="char", characters=problem.alphabet + START + END)
        self._layout = Layout(kind, len(problem.alphabet), len(problem.alphabet) + 1, problem.places)
        text = kind == "tokens" and problem.places is not None  # without a place where a question ends
        self.signature = Signature(
            kind=kind,
            vocabulary=tokenizer.size,
            tokenizer=tokenizer,
            start=None if text else self._layout.start,
            end=None if text else self._layout.end,
        )
        fresh = np.random.default_rng(0)
        self._draw(fresh, 1, shortest)  # fails now or never: longer ones are more
        self._models = {length: self._rows(problem.questions(fresh, 1, length)) for _, length in self._ranges}
        self._measured = [
            validation_questions(problem.questions, problem.key, self._share, options.examples, length)
            for length in (longest, 2 * longest)
        ]
        self._trained_width = width(self._models[longest])
        self.context = width(self._rows(self._measured[1][:1]))
        self.description = self._described()
        self.notes = self._remarks(options.examples)
        known = [1, *problem[:2], problem.alphabet, *self._lengths, options.pairs, options.examples, self._share, kind]
        self.sha256 = hashlib.sha256(json.dumps(known).encode()).hexdigest()

    @property
    def static(self) -> bool:
        """Whether all training batches have one shape."""
        return len(self._ranges) == 1

    def sample(self, rng: np.random.Generator, batch_size: int, rows: slice = ALL) -> TokenBatch[np.ndarray]:
        """Questions that are not held out, of lengths of one range, with their answers."""
        shortest, longest = self._ranges[0]
        if not self.static:  # the range that a length drawn from all of them is of
            length = rng.integers(self._lengths[0], self._lengths[1] + 1)
            shortest, longest = next(pair for pair in self._ranges if length <= pair[1])
        if shortest == longest:
            return self._rows(self._draw(rng, batch_size, longest)).rows(rows)
        counts = rng.multinomial(batch_size, np.full(longest - shortest + 1, 1 / (longest - shortest + 1)))
        groups = [self._draw(rng, num, shortest + n) for n, num in enumerate(counts.tolist()) if num]
        whole = self._layout.stacked([self._rows(group) for group in groups], self._models[longest])
        order = rng.permutation(batch_size)[rows]  # every process has rows of all lengths
        return whole.map(lambda array: array[order])

    def validation(self, batch_size: int, max_targets: int | None = None) -> Iterator[TokenBatch[np.ndarray]]:
        """Held-out questions of the training length, then those of twice of it; the same share of both."""
        share = 1.0
        if max_targets is not None:
            targets = sum(len(part) * self._rows(part[:1]).num_targets() for part in self._measured)
            share = min(1.0, max_targets / targets)
        for part in self._measured:
            num = max(1, int(share * len(part)))
            chosen = part[np.arange(num) * len(part) // num]
            for first in range(0, num, batch_size):
                yield self._rows(chosen[first : first + batch_size])

    def tally(self, answers: Answers, batch: TokenBatch[np.ndarray]) -> np.ndarray:
        """`[13]`: targets at the training length, which the score is of; of both parts loss, targets, answer tokens,
        right ones of these, questions, and those that were answered without a fault."""
        assert batch.mask is not None and answers.loss is not None and answers.best is not None
        mask, right = batch.mask, answers.best == batch.targets
        tokens = mask & (batch.targets != self._layout.end)  # that answers end is soon learnt, and would flatter
        asked = mask.any(1)
        sums = np.zeros((len(PARTS), 6))
        sums[int(width(batch) > self._trained_width)] = (
            np.where(mask, answers.loss, 0.0).sum(dtype=np.float64),
            mask.sum(),
            tokens.sum(),
            (tokens & right).sum(),
            asked.sum(),
            (asked & (right | ~mask).all(1)).sum(),
        )
        return np.concatenate((sums[0, 1:2], sums.ravel()))

    def metrics_of(self, sums: np.ndarray, sample: str | None) -> dict[str, float]:
        """Shares of questions and of answer tokens that are right, and the loss in nats a target."""
        metrics: dict[str, float] = {}
        for part, row in zip(PARTS, sums[1:].reshape(len(PARTS), -1).tolist(), strict=True):
            loss, targets, tokens, right, questions, exact = row
            if questions:
                values = {"exact_match": exact / questions, "token_accuracy": right / tokens, "loss": loss / targets}
                metrics |= {name + part: value for name, value in values.items() if name + part in self.metrics}
        return metrics

    def examples(self, shown: Shown) -> str:
        """Some questions with the model's answers, and behind those that are wrong the right ones.

        An answer ends, with dots, at its first wrong token: what the model would have written behind it is not known.
        """
        batch, best = shown.batch, shown.answers.best
        assert batch.mask is not None and best is not None
        in_row, lines = self.signature.start is None, []  # there no answer stands behind another one
        for row in range(min(SHOWN, len(best))):
            mask, question = batch.mask[row], batch.inputs[row] if batch.source is None else batch.source[row]
            if self.signature.kind == "tokens" and self.signature.start is not None:
                question = question[: mask.argmax()]
            said, right = best[row][mask], batch.targets[row][mask]
            wrong = np.flatnonzero(said != right)
            answer = self._text(said[: wrong[0] + 1 if wrong.size and not in_row else None])
            more = f"{'' if in_row else '...'}   not {self._text(right)}" if wrong.size else ""
            lines.append(f"{self._text(question)}{START}{answer}{more}")
        return "\n".join(lines)

    def _text(self, tokens: np.ndarray) -> str:
        """Up to the end, which padding is too."""
        assert self.signature.tokenizer is not None
        return self.signature.tokenizer.decode(tokens).partition(END)[0]

    def _draw(self, rng: np.random.Generator, num: int, length: int) -> np.ndarray:
        """Questions to train on."""
        return training_questions(self._problem.questions, self._problem.key, self._share, rng, num, length)

    def _rows(self, questions: np.ndarray) -> TokenBatch[np.ndarray]:
        """Questions of one length, answered."""
        return self._layout.batch(questions, self._problem.answers(questions))

    def _described(self) -> str:
        shortest, longest = self._lengths
        lengths = f"length {longest}" if shortest == longest else f"lengths {shortest} to {longest}"
        return f"{self._problem.about}, {lengths}, {len(self._problem.alphabet)} symbols"

    def _remarks(self, examples: int) -> list[str]:
        """That there are several shapes, and fewer questions than asked for."""
        notes = []
        if not self.static:
            spans = ", ".join(f"{a} to {b}" if a < b else str(a) for a, b in self._ranges)
            notes.append(f"Batches have {len(self._ranges)} different shapes (seq.buckets): of lengths {spans}.")
        for part, length in zip(self._measured, (self._lengths[1], 2 * self._lengths[1]), strict=True):
            if len(part) < examples:
                notes.append(
                    f"Only {len(part)} different questions of length {length} are held out for validation, not "
                    f"seq.examples = {examples}: there are too few."
                )
        return notes


def question_in(examples: str) -> str:
    """The first question of a task's examples; "" where questions have no end."""
    question, start, _ = examples.partition("\n")[0].partition(START)
    return question if start else ""


def _lengths(problem: Problem, options: SeqOptions) -> tuple[int, int]:
    """The shortest and the longest length that is trained on.

    Raises:
        UsageError: they contradict each other, or are too small.
    """
    longest = problem.length if options.length is None else options.length
    shortest = longest if options.min_length is None else options.min_length
    if shortest > longest:
        raise UsageError(
            f"seq.min_length = {shortest} is more than seq.length = {longest}"
            + (f", which is what {problem.name} has of itself" if options.length is None else "")
            + ": set one of them otherwise"
        )
    if shortest < problem.shortest:
        name = "length" if options.min_length is None else "min_length"
        raise UsageError(f"seq.{name} = {shortest} is too small for {problem.name}: at least {problem.shortest}")
    return shortest, longest


def ranges(shortest: int, longest: int, num: int) -> list[tuple[int, int]]:
    """At most `num` ranges of lengths, both ends included, of about as many lengths each."""
    count = longest - shortest + 1
    num = min(num, count)
    ends = [shortest + count * n // num for n in range(num + 1)]
    return [(first, following - 1) for first, following in itertools.pairwise(ends)]
