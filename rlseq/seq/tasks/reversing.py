"""The task `reverse`: write the question from its end to its beginning."""

from __future__ import annotations

from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.generated import GeneratedTask, Problem, alphabet_of, uniform
from rlseq.sequence import Kind


def reversing(options: SeqOptions, kind: Kind) -> GeneratedTask:
    """`seq.length` symbols of `seq.symbols`: `abc` is answered by `cba`."""
    symbols = options.symbols or 26
    problem = Problem(
        name="reverse",
        about="write the question backwards",
        alphabet=alphabet_of(symbols),
        length=20,
        shortest=1,
        questions=uniform(symbols),
        answers=lambda questions: questions[:, ::-1],
    )
    return GeneratedTask(problem, options, kind)
