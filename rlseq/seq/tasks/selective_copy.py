"""The task `selective-copy`: write the symbols again that stand scattered among blanks, and not the blanks.

The selective copying of Mamba (arXiv 2312.00752): the distances differ from question to question, so what is to be
kept must be told by what it is, not by where it stands. Unlike there, the answer is written token by token, each after
the ones before it, so that `rlseq generate` answers too; Mamba's answer places hold a mark in the answer's stead.
"""

from __future__ import annotations

import numpy as np

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask, Problem, alphabet_of
from rlseq.seq.tasks.holdout import Questions
from rlseq.sequence import Kind

BLANK = "."
KEPT = 16  # symbols, unless seq.pairs says otherwise


def selective_copy(options: SeqOptions, kind: Kind) -> GeneratedTask:
    """`seq.length` places, of which `seq.pairs` hold one of `seq.symbols`: `..a.bb..a` is answered by `abba`.

    At twice the length as many symbols stand among more blanks.
    """
    kept, symbols = options.pairs or KEPT, options.symbols or 16
    problem = Problem(
        name="selective-copy",
        about=f"write the {kept} symbols again that stand among blanks",
        alphabet=alphabet_of(symbols) + BLANK,
        length=100,
        shortest=kept,
        questions=scattered(symbols, kept),
        answers=lambda questions: questions[questions < symbols].reshape(len(questions), kept),
    )
    return GeneratedTask(problem, options, kind)


def scattered(num_symbols: int, kept: int) -> Questions:
    """Questions of blanks (symbol `num_symbols`) with `kept` symbols at places of their own, all equally likely."""

    def questions(rng: np.random.Generator, num: int, length: int) -> np.ndarray:
        whole = np.full((num, length), num_symbols)
        places = rng.permuted(np.broadcast_to(np.arange(length), (num, length)), axis=1)[:, :kept]
        np.put_along_axis(whole, places, rng.integers(0, num_symbols, size=(num, kept)), axis=1)
        return whole

    return questions
