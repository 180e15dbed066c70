"""The task `text`: predict the next character, or byte, of a text.

The text's first part is trained on, its end (`seq.validation`) only ever measured.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from rlseq.errors import UsageError
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqOptions
from rlseq.seq.corpus import Corpus, read_corpus
from rlseq.seq.tasks.task import ALL, Answers, Direction, Shown
from rlseq.sequence import Signature

NO_WORD = re.compile(r"\W+")
LARGEST_EXPONENT = 700.0  # e to the power of this is still a number
WORDS_OF = (
    1 << 25
)  # tokens, from the corpus' beginning, whose words are known: the set of a larger text's would not fit
AT_ONCE = 1 << 20  # tokens decoded at once


class Split(NamedTuple):
    """Training and validation tokens, one after the other."""

    train: np.ndarray
    validation: np.ndarray


class TextTask:
    """Language modelling of one text.

    Args:
        options: which text, cut into tokens and split how.
        corpus: the text, if it was read already.
        whole: all of it is measured on, and nothing is trained on.

    Attributes: see `rlseq.seq.tasks.task.Task`.

    Raises:
        UsageError: unfit data (see `rlseq.seq.corpus.read_corpus`), or too little of it.
    """

    name = "text"
    static = True

    def __init__(self, options: SeqOptions, corpus: Corpus | None = None, *, whole: bool = False) -> None:
        corpus = corpus or read_corpus(options.data, options.pattern, options.unit)
        self.signature = Signature(vocabulary=corpus.tokenizer.size, tokenizer=corpus.tokenizer)
        self.sha256, self.description = corpus.sha256, corpus.description
        self.notes = list(corpus.notes)
        self.metrics: dict[str, Direction] = {
            "loss": "lower",
            "bits_per_token": "lower",
            "perplexity": "lower",
            "word_share": "higher",
        }
        self.context = options.context
        self._corpus = corpus
        everything = np.asarray(corpus.tokens)
        if whole and len(everything) < 2:
            raise UsageError(f"{corpus.description} is too short: there is nothing to predict in it.")
        self._split = (
            Split(everything[:0], everything) if whole else split_tokens(corpus, options.validation, options.context)
        )
        self._words: frozenset[str] | None = None

    @property
    def predictions_per_epoch(self) -> int:
        """Targets of the training part."""
        return len(self._split.train) - 1

    def sample(self, rng: np.random.Generator, batch_size: int, rows: slice = ALL) -> TokenBatch[np.ndarray]:
        """Windows of the context's length from anywhere in the training part, every start equally likely."""
        train, context = self._split.train, self.context
        start_B1 = rng.integers(0, len(train) - context, size=(batch_size, 1))[rows]
        window_BT = train[start_B1 + np.arange(context + 1)]
        return TokenBatch(window_BT[:, :-1].astype(np.int64), window_BT[:, 1:].astype(np.int64))

    def validation(self, batch_size: int, max_targets: int | None = None) -> Iterator[TokenBatch[np.ndarray]]:
        """The validation part in windows of the context's length that follow each other; the last is padded."""
        tokens, context = self._split.validation, self.context
        total = len(tokens) - 1
        starts = np.arange(0, total, context)
        longest = context
        if max_targets is not None and max_targets < total:
            count = max(1, max_targets // context)
            starts = starts[np.arange(count) * len(starts) // count]
            longest = min(context, max_targets)
        for first in range(0, len(starts), batch_size):
            yield _windows(tokens, starts[first : first + batch_size], context, longest)

    def tally(self, answers: Answers, batch: TokenBatch[np.ndarray]) -> np.ndarray:
        """`[2]`: targets, and their loss in nats."""
        assert answers.loss is not None
        counted = answers.loss if batch.mask is None else answers.loss[batch.mask]
        return np.array([counted.size, counted.sum(dtype=np.float64)])

    def metrics_of(self, sums: np.ndarray, sample: str | None) -> dict[str, float]:
        """Loss in nats a token, the same in bits, perplexity (at most e^700), and the share of words that are words."""
        loss = float(sums[1] / sums[0])
        metrics = {
            "loss": loss,
            "bits_per_token": loss / math.log(2),
            "perplexity": math.exp(min(loss, LARGEST_EXPONENT)),
        }
        if sample:
            if self._words is None:
                self._words = words_of(self._corpus)
            metrics["word_share"] = word_share(sample, self._words)
        return metrics

    def prompt(self) -> str:
        """A line end, or the text's first character if it has none."""
        tokenizer = self._corpus.tokenizer
        if tokenizer.unit == "byte" or "\n" in tokenizer.characters:
            return "\n"
        return tokenizer.decode(self._corpus.tokens[:1])

    def examples(self, shown: Shown) -> str:
        """None: the sample shows more."""
        return ""

    def pictures(self, sums: np.ndarray, shown: Shown) -> dict[str, bytes]:
        """None."""
        return {}


def split_tokens(corpus: Corpus, validation: float, context: int) -> Split:
    """The first `floor((1 - validation) N)` of N tokens to train on, the others to measure on.

    Raises:
        UsageError: no window fits into the first, or there is nothing to predict in the second.
    """
    tokens = np.asarray(corpus.tokens)
    # The share as it was written: 1 - 0.9 in floats is less than a tenth, and one token would change sides.
    num_train = math.floor((1 - Fraction(str(validation))) * len(tokens))
    split = Split(tokens[:num_train], tokens[num_train:])
    where = f"{corpus.description} leaves {num_train} tokens to train on and {len(split.validation)} for validation"
    if len(split.validation) < 2:
        raise UsageError(
            f"{where} (seq.validation = {validation:g}), and validation needs at least 2: set seq.validation higher, "
            "or give more data: --data PATH"
        )
    if num_train <= context:
        raise UsageError(
            f"{where} (seq.validation = {validation:g}), and a window needs {context + 1}: set seq.context or "
            "seq.validation lower, or give more data: --data PATH"
        )
    return split


def _windows(tokens: np.ndarray, starts: np.ndarray, context: int, longest: int) -> TokenBatch[np.ndarray]:
    """Windows `[B, context]` of at most `longest` targets each, padded with token 0."""
    index_BT = starts[:, None] + np.arange(context + 1)
    window_BT = tokens[np.minimum(index_BT, len(tokens) - 1)].astype(np.int64)
    mask_BT = (index_BT[:, 1:] < len(tokens)) & (np.arange(context) < longest)
    if mask_BT.all():
        return TokenBatch(window_BT[:, :-1].copy(), window_BT[:, 1:].copy())
    return TokenBatch(window_BT[:, :-1] * mask_BT, window_BT[:, 1:] * mask_BT, mask_BT)


def words_of(corpus: Corpus) -> frozenset[str]:
    """The different words of a text: runs of letters, digits and underscores."""
    words: set[str] = set()
    rest = ""  # a word that may go on in the next piece
    for text in _spaced(corpus):
        *whole, rest = (rest + text).split(" ")
        words.update(whole)
    return frozenset((words | {rest}) - {""})


def _spaced(corpus: Corpus) -> Iterator[str]:
    """The text in pieces, with spaces for all that is not of a word."""
    tokens = corpus.tokens[:WORDS_OF]
    pieces = (tokens[first : first + AT_ONCE] for first in range(0, len(tokens), AT_ONCE))
    if corpus.tokenizer.unit == "byte":
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for piece in pieces:
            yield NO_WORD.sub(" ", decoder.decode(piece.tobytes()))
        return
    # By a table, because for ten million characters that takes a second and a regular expression four.
    code_points = np.array([ord(NO_WORD.sub(" ", character)) for character in corpus.tokenizer.characters], "<u4")
    for piece in pieces:
        yield code_points[piece].tobytes().decode("utf-32-le")


def word_share(sample: str, words: frozenset[str]) -> float:
    """Which share of a sample's words are among `words`; 0 if it has none.

    A word that the sample ends in does not count, since it may have been cut off.
    """
    made = [word for word in NO_WORD.split(sample)[:-1] if word]
    return sum(word in words for word in made) / len(made) if made else 0.0
