"""How the rows of one long series are shared between training and measuring."""

from __future__ import annotations

import math
from fractions import Fraction

from rlseq.errors import UsageError, counted
from rlseq.seq.config import SeqOptions


def split_rows(options: SeqOptions, rows: int, data: str) -> int:
    """How many rows are trained on: the first `floor((1 - seq.validation) N)`.

    Raises:
        UsageError: no window fits into them, or no horizon into the rest.
    """
    train = math.floor((1 - Fraction(str(options.validation))) * rows)
    where = (
        f"{data}: seq.validation = {options.validation:g} leaves {counted(train, 'row')} to train on and "
        f"{rows - train} to measure"
    )
    window = options.context + options.horizon
    if train < window:
        raise UsageError(
            f"{where}, and a window takes {window} (seq.context = {options.context} that are read, seq.horizon = "
            f"{options.horizon} that are forecast). Give more rows, or a smaller --context or --horizon."
        )
    if rows - train < options.horizon:
        raise UsageError(
            f"{where}, and a forecast takes seq.horizon = {options.horizon}. Give more rows, a larger --set "
            "seq.validation, or a smaller --horizon."
        )
    return train


def before_all(options: SeqOptions, rows: int, data: str) -> int:
    """How many rows are read before the first forecast, where all that there are is measured on.

    Raises:
        UsageError: no window fits into them.
    """
    window = options.context + options.horizon
    if rows < window:
        raise UsageError(
            f"{data}: too few rows, for a window takes {window} (the model reads {options.context} and forecasts "
            f"{options.horizon}). Give a longer file."
        )
    return options.context
