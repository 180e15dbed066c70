"""Medians, spreads and ratios by hand, and the order in which sides run."""

from __future__ import annotations

import pytest

from rlseq.bench.measure import RUNS, Timing, alternate, compare, measurement, summary

OURS = [Timing(2.0, 100, 7), Timing(1.0, 100, 7), Timing(4.0, 100, 7)]
THEIRS = [Timing(6.0, 100), Timing(8.0, 100), Timing(10.0, 100)]


def test_a_side_in_numbers() -> None:
    assert summary(OURS) == {
        "seconds": [2.0, 1.0, 4.0],
        "median": 2.0,
        "spread": [1.0, 4.0],
        "steps": [100, 100, 100],
        "steps_per_second": 50.0,
    }


def test_the_ratio_is_of_the_medians_and_its_spread_of_the_pairs() -> None:
    result = compare(OURS, THEIRS)
    assert result["ratio"] == pytest.approx(8.0 / 2.0)
    assert result["ratios"] == pytest.approx([3.0, 8.0, 2.5])
    assert result["spread"] == pytest.approx([2.5, 8.0])


def test_of_unequal_steps_it_is_the_time_a_step() -> None:
    assert compare([Timing(1.0, 1000)], [Timing(2.0, 100)])["ratio"] == pytest.approx(20.0)


def test_an_even_number_of_repeats_has_the_mean_of_the_middle_two() -> None:
    assert summary(OURS[:2])["median"] == 1.5
    assert compare(OURS[:2], THEIRS[:2])["ratio"] == pytest.approx(7.0 / 1.5)


def test_the_sides_take_turns_and_share_a_seed() -> None:
    called: list[tuple[str, int]] = []
    told: list[str] = []

    def side(name: str) -> Timing:
        return Timing(0.5 if name == "a" else 2.0, 10)

    sides = {name: lambda seed, name=name: called.append((name, seed)) or side(name) for name in ("a", "b")}
    timings = alternate(sides, 3, told.append)
    assert called == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert timings == {"a": [Timing(0.5, 10)] * 3, "b": [Timing(2.0, 10)] * 3}
    assert told[0] == "repeat 1 of 3, a: 0.500 s, 20 steps/s"


def test_what_is_counted_is_told() -> None:
    told: list[str] = []
    for unit in ("tokens", RUNS):
        alternate({"a": lambda seed: Timing(0.5, 1_000)}, 1, told.append, unit)
    assert told == ["repeat 1 of 1, a: 0.500 s, 2,000 tokens/s", "repeat 1 of 1, a: 0.500 s"]
    assert measurement("racing", OURS, THEIRS, None, "tokens")["unit"] == "tokens"


def test_a_measurement_names_the_peer() -> None:
    result = measurement("racing", OURS, THEIRS, {"name": "them", "version": "1.0"})
    assert result["what"] == "racing"
    assert (result["peer"]["name"], result["peer"]["version"], result["peer"]["median"]) == ("them", "1.0", 8.0)
    assert result["ratio"] == 4.0


def test_without_a_peer_there_is_no_ratio() -> None:
    result = measurement("racing", OURS, None, None)
    assert result["ours"]["median"] == 2.0
    assert [result[key] for key in ("peer", "ratio", "ratios", "spread")] == [None] * 4
