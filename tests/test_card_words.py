"""Words and numbers that all cards are made of."""

from __future__ import annotations

from rlseq.card_words import metrics_in, parity_words, rounded, table
from tests.made_runs import SEQUENCE_PARITY
from tests.test_card_text_sequence import ADDITION, SERIES


def test_the_metrics_are_those_that_the_runs_have() -> None:
    assert [metric.key for metric in metrics_in(ADDITION)][:2] == ["exact_match", "exact_match_2x"]
    assert "coverage" not in [metric.key for metric in metrics_in(SERIES)]
    runs = [{**SERIES["runs"][0], "coverage": 0.8}]
    assert metrics_in({**SERIES, "runs": runs})[-1].key == "coverage"


def test_how_the_file_was_compared() -> None:
    at = "values within 2.5e-07 of the network's at batches of 1, 3 and lengths of 1, 5, whole"
    assert parity_words(SEQUENCE_PARITY) == f"{at} and token by token"
    series = {key: SEQUENCE_PARITY[key] for key in ("batch_sizes", "lengths", "max_error", "stepwise_tokens")}
    assert parity_words(series) == f"{at} and step by step"
    assert parity_words({**series, "stepwise_tokens": 0, "padded_rows": True}) == f"{at}, with and without padding"


def test_three_figures_and_cells_that_hold_a_bar() -> None:
    assert [rounded(value) for value in (2_987.6, 789.44, 0.4)] == ["2,990", "789", "0"]
    assert table(["a", "b"], [["1|2", "3"]]) == "| a | b |\n| --- | ---: |\n| 1\\|2 | 3 |"
