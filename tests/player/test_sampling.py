"""Choosing a token, against probabilities worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlseq.errors import RlseqError, UsageError
from rlseq.player.sampling import GREEDY, Sampling, check_sampling, choose

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def shares(logits: np.ndarray, sampling: Sampling, draws: int = 4_000) -> np.ndarray:
    """How often each token was drawn."""
    rng = np.random.default_rng(0)
    counts = np.bincount([choose(logits, sampling, rng) for _ in range(draws)], minlength=len(logits))
    return counts / draws


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(temperature=0.5), [1 / 30, 16 / 30, 4 / 30, 9 / 30]),  # probabilities squared
        (Sampling(top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(top_k=9), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(top_p=0.6), [0, 4 / 7, 0, 3 / 7]),  # 0.4 alone is too little
        (Sampling(top_p=0.95), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(top_p=0.01), [0, 1, 0, 0]),
        (Sampling(top_k=3, top_p=0.7), [0, 4 / 7, 0, 3 / 7]),  # of 4/9, 3/9, 2/9 the first two hold 7/9
        (Sampling(top_k=2, temperature=0.5), [0, 16 / 25, 0, 9 / 25]),
        (Sampling(temperature=1e-300), [0, 1, 0, 0]),
        (GREEDY, [0, 1, 0, 0]),
    ],
)
def test_tokens_come_as_often_as_their_probability_says(sampling: Sampling, expected: list[float]) -> None:
    found = shares(LOGITS, sampling)
    np.testing.assert_allclose(found, expected, atol=0.03)  # four standard errors of 4000 draws
    assert [bool(share) for share in found] == [bool(share) for share in expected]


def test_the_same_draw_gives_the_same_token_for_logits_moved_as_a_whole() -> None:
    def tokens(logits: np.ndarray) -> list[int]:
        rng = np.random.default_rng(3)
        return [choose(logits, Sampling(top_k=3), rng) for _ in range(50)]

    assert tokens(LOGITS) == tokens(LOGITS + 1000) == tokens(LOGITS.astype(np.float64) - 1e6)


def test_ties_go_to_the_lowest_token() -> None:
    rng = np.random.default_rng(0)
    tied = np.array([-2.0, -1.0, -1.0, -1.0], np.float32)
    assert choose(tied, GREEDY, rng) == 1
    assert {choose(tied, Sampling(top_k=2), rng) for _ in range(100)} == {1, 2}
    assert rng.random() == np.random.default_rng(0).random(101)[100]  # one number each, none for the greedy one


def test_what_is_minus_infinity_is_never_drawn() -> None:
    logits = np.array([-np.inf, 0.0, -np.inf, 0.0], np.float32)
    assert (shares(logits, Sampling(), 500)[[0, 2]] == 0).all()
    always_last = type("Rng", (), {"random": lambda self: 1 - 2**-53})()  # the largest number a generator gives
    assert choose(logits, Sampling(), always_last) == 3
    many = np.full(1000, -np.inf, np.float32)
    many[7] = 3
    assert choose(many, Sampling(top_p=0.999), always_last) == 7


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling()])
def test_broken_logits_are_refused(value: float, sampling: Sampling) -> None:
    with pytest.raises(RlseqError, match=r"largest logit is (nan|inf): its weights are broken"):
        choose(np.array([0, value], np.float32), sampling, np.random.default_rng(0))
    with pytest.raises(RlseqError, match="largest logit is -inf"):
        choose(np.full(3, -np.inf), sampling, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (Sampling(temperature=-0.1), "temperature -0.1"),
        (Sampling(temperature=math.nan), "temperature nan"),
        (Sampling(temperature=math.inf), "temperature inf"),
        (Sampling(top_k=0), "top_k 0"),
        (Sampling(top_p=0.0), "top_p 0.0"),
        (Sampling(top_p=1.1), "top_p 1.1"),
        (Sampling(top_p=math.nan), "top_p nan"),
    ],
)
def test_numbers_that_mean_nothing_are_named(sampling: Sampling, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_sampling(sampling)


def test_the_ends_of_every_range_are_allowed() -> None:
    for sampling in (GREEDY, Sampling(), Sampling(top_k=1), Sampling(top_p=1.0), Sampling(temperature=1e6)):
        check_sampling(sampling)
