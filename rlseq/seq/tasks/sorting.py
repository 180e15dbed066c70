"""The task `sort`: write the question's symbols in their order."""

from __future__ import annotations

import numpy as np

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask, Problem, alphabet_of, uniform
from rlseq.sequence import Kind


def sorting(options: SeqOptions, kind: Kind) -> GeneratedTask:
    """`seq.length` symbols of `seq.symbols`, in the order of the alphabet: `cabca` is answered by `aabcc`."""
    symbols = options.symbols or 26
    problem = Problem(
        name="sort",
        about="write the question's symbols in their order",
        alphabet=alphabet_of(symbols),
        length=20,
        shortest=1,
        questions=uniform(symbols),
        answers=lambda questions: np.sort(questions, axis=1),
    )
    return GeneratedTask(problem, options, kind)
