"""The tasks `forecast`, `mackey-glass` and `lorenz`: the next values of a series, of a CSV file or computed.

A model reads a window of `seq.context` rows and gives the `seq.horizon` values of the target that follow. It is trained
on windows all of whose values lie in the first part of the series, and measured on those whose forecast values lie in
its end, the share `seq.validation`; what such a window reads may lie before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rlseq.errors import UsageError, counted
from rlseq.seq.batch import TokenBatch
from rlseq.seq.config import SeqOptions
from rlseq.seq.series.generated import digest, lorenz, mackey_glass
from rlseq.seq.series.scaling import lost_changes, scaling
from rlseq.seq.series.table import begun_table, check_column, check_columns, listed, read_table
from rlseq.seq.series.windows import before_all, split_rows
from rlseq.seq.tasks.pictures import Forecast, forecast_picture, without_pictures
from rlseq.seq.tasks.task import ALL, Answers, Direction, Showing, Shown
from rlseq.sequence import Signature

ROWS = 5_000  # of a computed series
LORENZ = ("x", "y", "z")
MEDIAN = 0.5
STILL = 1e-30  # instead of zero, where no window of a sample of them changes: the ratio is then large, and a number
STANDS_STILL = (
    "no naive_ratio: the target never changes in the rows that are forecast, so the last value is always right"
)
PICTURED = 4  # windows


class Multivariate(NamedTuple):
    """N rows of F features, one after the other in time.

    Attributes:
        values: `[N, F]`.
        features: names.
        sha256: of the data.
        description: the data: name and size.
    """

    values: np.ndarray
    features: tuple[str, ...]
    sha256: str
    description: str


class ForecastTask(Showing):
    """Windows of a series.

    Args:
        options: window, horizon, split and quantiles.
        data: the series.
        target: which feature is forecast.
        name: of the task.
        model: of a trained model that is measured on all windows of other data; its scaling is kept, and nothing is
            trained on.

    Attributes: see `rlseq.seq.tasks.task.Task`.

    Raises:
        UsageError: too few rows, a target that never changes, or quantiles without a median.
    """

    static = True

    def __init__(
        self,
        options: SeqOptions,
        data: Multivariate,
        target: str,
        name: str = "forecast",
        model: Signature | None = None,
    ) -> None:
        self.name, self.sha256 = name, data.sha256
        self.context, self._horizon = options.context, options.horizon
        self._values = data.values.astype(np.float32)  # [N, F]
        split = split_rows if model is None else before_all
        self._train = split(options, len(data.values), data.description)
        self._target = data.features.index(target)
        part = slice(self._train if model is None else None)
        of_training = self._values[part, self._target]
        lost = lost_changes(data.values[part], data.features)
        if of_training.min() == of_training.max():
            rows = "all rows" if model is not None else f"all {self._train} rows of the training part"
            fix = "file" if model is not None else "column: --target COLUMN"
            what = (
                f"{lost[target]}, or "
                if target in lost
                else (f"is {of_training[0]:g} in {rows}, so there is nothing to forecast: ")
            )
            raise UsageError(f"{data.description}: the column {target!r} {what}give another {fix}")
        self.description = f"{data.description}, {target} forecast {counted(options.horizon, 'row')} ahead"
        self.notes = without_pictures()
        if model is None:
            scaled = scaling(self._values[part], data.features, lost)
            self.notes = [*scaled.notes, *self.notes]
            model = Signature(
                kind="forecast",
                features=data.features,
                shift=scaled.shift,
                scale=scaled.scale,
                target=self._target,
                horizon=options.horizon,
                quantiles=check_quantiles(options.quantiles) if options.loss == "quantile" else (),
            )
        self.signature = model
        # Hyndman and Koehler's: how wrong the last value is about the next one, in the training part.
        self._naive_step = float(np.abs(np.diff(of_training.astype(np.float64))).mean())
        self.metrics: dict[str, Direction] = {
            "mase": "lower",
            "mae": "lower",
            "rmse": "lower",
            "naive_ratio": "lower",
            "rmse_1": "lower",
            "nrmse_1": "lower",
            "loss": "lower",
        }
        if model.quantiles:
            self.metrics["coverage"] = "higher"
        if np.ptp(self._values[self._train - 1 :, self._target]) == 0:  # from the last value that is read first
            del self.metrics["naive_ratio"]
            self.notes.append(STANDS_STILL)

    @property
    def predictions_per_epoch(self) -> int:
        """Rows of the training part from which the next `seq.horizon` are forecast."""
        return self._train - self._horizon

    def sample(self, rng: np.random.Generator, batch_size: int, rows: slice = ALL) -> TokenBatch[np.ndarray]:
        """Windows from anywhere in the training part, every start equally likely."""
        starts = rng.integers(0, self._train - self.context - self._horizon + 1, size=batch_size)[rows]
        return self._windows(starts)

    def validation(self, batch_size: int, max_targets: int | None = None) -> Iterator[TokenBatch[np.ndarray]]:
        """One window for every run of `seq.horizon` rows of the validation part, in order."""
        first = self._train - self.context
        starts = np.arange(first, len(self._values) - self.context - self._horizon + 1)
        count = len(starts) if max_targets is None else max(1, max_targets // self._horizon)
        if count < len(starts):
            starts = starts[np.arange(count) * len(starts) // count]
        for begin in range(0, len(starts), batch_size):
            yield self._windows(starts[begin : begin + batch_size])

    def _windows(self, starts: np.ndarray) -> TokenBatch[np.ndarray]:
        index_BT = starts[:, None] + np.arange(self.context)
        ahead_BTH = index_BT[..., None] + np.arange(1, self._horizon + 1)
        return TokenBatch(self._values[index_BT], self._values[:, self._target][ahead_BTH])

    def tally(self, answers: Answers, batch: TokenBatch[np.ndarray]) -> np.ndarray:
        """`[7]`: values forecast after the last place; their absolute and squared errors; the absolute errors of the
        last value read instead; windows and their squared errors one step ahead; values between the outer quantiles.
        """
        assert answers.values is not None
        truth_BH = batch.targets[:, -1].astype(np.float64)
        error_BH = point_forecast(answers.values, self.signature.quantiles).astype(np.float64) - truth_BH
        naive_BH = batch.inputs[:, -1, self._target].astype(np.float64)[:, None] - truth_BH
        within = 0
        if self.signature.quantiles:
            low, high = answers.values[..., 0], answers.values[..., -1]
            within = int(((low <= truth_BH) & (truth_BH <= high)).sum())
        return np.array(
            [
                error_BH.size,
                np.abs(error_BH).sum(),
                (error_BH**2).sum(),
                np.abs(naive_BH).sum(),
                len(error_BH),
                (error_BH[:, 0] ** 2).sum(),
                within,
            ]
        )

    def metrics_of(self, sums: np.ndarray, sample: str | None) -> dict[str, float]:
        """How far the forecasts are off, quantiles by their median.

        - `mae`, `rmse`: over all `seq.horizon` steps, in the target's unit.
        - `mase`: `mae` over the mean absolute change from one row of the training part to the next (R. J. Hyndman and
          A. B. Koehler, Another look at measures of forecast accuracy, International Journal of Forecasting 22 (2006)
          679-688): so the scale is that of one step ahead, whatever `seq.horizon`.
        - `naive_ratio`: `mae` over that of forecasting the last value read, for the same windows and steps; left out
          where that is never wrong.
        - `rmse_1`, `nrmse_1`: one step ahead, in the target's unit and in standard deviations of its training part.
        - `loss`: the mean squared error, in squares of that deviation.
        - `coverage`: the share of values between the outer quantiles.
        """
        count, absolute, squared, naive, windows, squared_1, within = sums.tolist()
        deviation = self.signature.scale[self._target]
        mae, rmse_1 = absolute / count, math.sqrt(squared_1 / windows)
        metrics = {
            "mase": mae / self._naive_step,
            "mae": mae,
            "rmse": math.sqrt(squared / count),
            "naive_ratio": absolute / max(naive, STILL),
            "rmse_1": rmse_1,
            "nrmse_1": rmse_1 / deviation,
            "loss": squared / count / deviation**2,
        }
        metrics["coverage"] = within / count
        return {name: metrics[name] for name in self.metrics}

    def examples(self, shown: Shown) -> str:
        """The first window's values, and their forecast."""
        assert shown.answers.values is not None
        truth = shown.batch.targets[0, -1].tolist()
        point = point_forecast(shown.answers.values[:1], self.signature.quantiles)[0].tolist()
        return "\n".join(f"{value:.6g} -> {forecast:.6g}" for value, forecast in zip(truth, point, strict=True))

    def pictures(self, sums: np.ndarray, shown: Shown) -> dict[str, bytes]:
        """A few windows: what was read, what followed, and the forecast."""
        if without_pictures():
            return {}
        assert shown.answers.values is not None
        batch, values = shown.batch, shown.answers.values
        count = min(PICTURED, len(values))
        windows = []
        for row in (np.arange(count) * len(values) // count).tolist():
            point = point_forecast(values[row : row + 1], self.signature.quantiles)[0]
            band = (values[row, :, 0], values[row, :, -1]) if self.signature.quantiles else None
            windows.append(Forecast(batch.inputs[row, :, self._target], batch.targets[row, -1], point, band))
        quantiles = self.signature.quantiles
        outer = (quantiles[0], quantiles[-1]) if quantiles else None
        return {"forecasts": forecast_picture(windows, self.signature.features[self._target], outer)}


def point_forecast(values: np.ndarray, quantiles: tuple[float, ...]) -> np.ndarray:
    """`[B, H]` from `[B, H]`, or the median of `[B, H, Q]`."""
    return values[..., quantiles.index(MEDIAN)] if quantiles else values


def check_quantiles(quantiles: tuple[float, ...]) -> tuple[float, ...]:
    """Raises:
    UsageError: they do not rise, or the median, which is the forecast, is not among them.
    """
    shown = ", ".join(f"{quantile:g}" for quantile in quantiles)
    if any(low >= high for low, high in itertools.pairwise(quantiles)):
        raise UsageError(f"seq.quantiles = [{shown}] must rise from one to the next.")
    if quantiles == (MEDIAN,):
        raise UsageError("seq.quantiles = [0.5] is the median alone: give one below and one above it too.")
    if MEDIAN not in quantiles:
        raise UsageError(f"seq.quantiles = [{shown}] lacks 0.5, the median, which is the forecast: add it.")
    return quantiles


def read_forecast(options: SeqOptions) -> ForecastTask:
    """The task `forecast`, of `seq.data` with `seq.target`: all columns are read, or those of `seq.columns`.

    Raises:
        UsageError: unfit data.
    """
    if options.data is None:
        raise UsageError("the task forecast is about a CSV file, and none was named: --data FILE")
    with begun_table(options.data) as file:
        if options.target is None:
            raise UsageError(f"which column is forecast? Give --target COLUMN; {options.data} has {listed(file.names)}")
        check_column(options.target, file.names, options.data, "--target")
        check_columns(options.columns, file.names, options.data, {})
        if options.columns and options.target not in options.columns:
            raise UsageError(
                f"--columns {','.join(options.columns)} lacks the target {options.target!r}, whose last value a "
                "forecast goes on from: add it."
            )
        table = read_table(file, only=options.columns or None)
    rows, width = table.numbers.shape
    description = f"{options.data}, {counted(rows, 'row')} of {counted(width, 'column')}"
    data = Multivariate(table.numbers, table.names, table.sha256, description)
    return ForecastTask(options, data, options.target)


def make_mackey_glass(options: SeqOptions) -> ForecastTask:
    """The task `mackey-glass`: `rlseq.seq.series.generated.mackey_glass`, 5,000 rows."""
    return _computed(options, mackey_glass(ROWS), ("x",), "mackey-glass")


def make_lorenz(options: SeqOptions) -> ForecastTask:
    """The task `lorenz`: `rlseq.seq.series.generated.lorenz`, 5,000 rows; x unless `seq.target` says otherwise."""
    return _computed(options, lorenz(ROWS), LORENZ, "lorenz")


def _computed(options: SeqOptions, values: np.ndarray, features: tuple[str, ...], name: str) -> ForecastTask:
    target = options.target or features[0]
    check_column(target, features, f"the series {name}", "--target")
    return ForecastTask(options, Multivariate(values, features, digest(values), f"{len(values)} rows"), target, name)
