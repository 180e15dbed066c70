"""The task `copy`: write the question again."""

from __future__ import annotations

import numpy as np

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask, Problem, alphabet_of, uniform
from rlseq.sequence import Kind


def copying(options: SeqOptions, kind: Kind) -> GeneratedTask:
    """`seq.length` symbols of `seq.symbols`: `abca` is answered by `abca`."""
    symbols = options.symbols or 26
    problem = Problem(
        name="copy",
        about="repeat the question",
        alphabet=alphabet_of(symbols),
        length=20,
        shortest=1,
        questions=uniform(symbols),
        answers=np.copy,
    )
    return GeneratedTask(problem, options, kind)
