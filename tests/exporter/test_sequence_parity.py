"""The proof of a sequence model's export finds each kind of wrong graph; the graphs are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rlseq.errors import ParityError
from rlseq.exporter.sequence_compare import compare
from rlseq.exporter.sequence_parity import check_sequence_parity, compare_greedy, pieces_for
from rlseq.nets.stepper import TorchSequence
from tests.sequences import CORES, WINDOW, small_network, spec_of

Arrays = tuple[np.ndarray, ...]
Change = Callable[[np.ndarray, Arrays, np.ndarray, Arrays], tuple[np.ndarray, Arrays]]


class StandIn:
    """A graph that does as the network does, but for one change: of tokens, state, logits and next state."""

    def __init__(self, core: str, change: Change = lambda tokens, state, logits, after: (logits, after)) -> None:
        self.network = network(core)
        self.spec = self.network.spec
        self.change = change

    def initial_state(self, batch: int) -> Arrays:
        return tuple(leaf.zeros(batch) for leaf in self.spec.state)

    def step(self, tokens: np.ndarray, state: Arrays) -> tuple[np.ndarray, Arrays]:
        logits, after = self.network.step(tokens, self.network.from_numpy(state))
        return self.change(tokens, state, logits.copy(), tuple(array.numpy() for array in after))


def network(core: str) -> TorchSequence:
    net = small_network(core)
    return TorchSequence(net, spec_of(net, core))


@pytest.mark.parametrize("core", CORES)
def test_a_sound_graph_passes(core: str) -> None:
    report: dict[str, Any] = check_sequence_parity(network(core), StandIn(core))  # type: ignore[arg-type]
    assert 0 < report.pop("max_error") < 1e-4  # not 0: in pieces the sums have another order
    assert report == {
        "batch_sizes": [1, 3],
        "lengths": [1, 5, 17],
        "stepwise_tokens": 46,
        "greedy_tokens": 64,
        "greedy_tokens_equal": 64,
        "seed": 2_000_000,
    }


def off_by_a_little(tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays) -> tuple[np.ndarray, Arrays]:
    logits[..., 3] += 0.01
    return logits, after


def wrong_in_the_second_row(
    tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
) -> tuple[np.ndarray, Arrays]:
    logits[1:] = logits[:1]
    return logits, after


def wrong_beyond_the_examples_length(
    tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
) -> tuple[np.ndarray, Arrays]:
    logits[:, 5:] = 0
    return logits, after


def a_state_that_is_forgotten(
    tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
) -> tuple[np.ndarray, Arrays]:
    return logits, tuple(np.zeros_like(array) for array in after)


def a_token_too_few_remembered(
    tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
) -> tuple[np.ndarray, Arrays]:
    return logits, tuple(array[:, :, -(WINDOW - 2) :] if array.ndim == 4 else array for array in after)


def a_position_that_stands_still(
    tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
) -> tuple[np.ndarray, Arrays]:
    return logits, (*after[:-1], state[-1])


def wrong_once_the_window_is_full(
    tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
) -> tuple[np.ndarray, Arrays]:
    if state[0].shape[2] == WINDOW - 1:
        logits[:] = logits[..., ::-1]
    return logits, after


def wrong_from_a_full_state_only(
    tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
) -> tuple[np.ndarray, Arrays]:
    if tokens.shape[1] == 3:  # in one of the comparisons only
        logits += 1
    return logits, after


def wrong_at_the_beginning_only(
    tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
) -> tuple[np.ndarray, Arrays]:
    if tokens.shape == (3, 5) and state[-1] == 0:
        logits += 1
    return logits, after


@pytest.mark.parametrize(
    ("core", "change"),
    [
        *((core, change) for core in CORES for change in (off_by_a_little, wrong_in_the_second_row)),
        *((core, change) for core in CORES for change in (wrong_beyond_the_examples_length, a_state_that_is_forgotten)),
        ("gpt", a_token_too_few_remembered),
        ("gpt", a_position_that_stands_still),
        ("gpt", wrong_once_the_window_is_full),
        ("gpt", wrong_from_a_full_state_only),
        ("gpt", wrong_at_the_beginning_only),
    ],
)
def test_a_wrong_graph_is_found(core: str, change: Change) -> None:
    with pytest.raises(ParityError, match=r"the exported graph's .*(differ by up to|have shape)"):
        check_sequence_parity(network(core), StandIn(core, change))  # type: ignore[arg-type]


def test_weights_that_have_diverged_are_named_as_such() -> None:
    diverged = network("gru")
    with torch.no_grad():
        diverged.net.embedding.weight[:] = torch.inf
    with pytest.raises(ParityError, match="are NaN or infinite: its weights have diverged"):
        check_sequence_parity(diverged, StandIn("gru"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "edge"),
    [(None, []), (1, []), (12, []), (35, []), (36, [1]), (128, [93]), (1024, [989]), (1_000_000, [989])],
)
def test_pieces_end_single_tokens_on_both_sides_of_the_edge(window: int | None, edge: list[int]) -> None:
    pieces = pieces_for(window)
    assert pieces == [17, *[1] * 12, *edge, *[1] * 12, 5]
    if edge and window == 128:
        singles = range(17 + 12 + 93, 17 + 12 + 93 + 12)
        assert (singles[0], singles[-1]) == (128 - 6, 128 + 5)


def test_differences_are_measured_against_the_largest_number() -> None:
    expected = np.array([1000.0, 1.0])
    assert compare(expected, expected + 0.09, "x") == pytest.approx(0.09)
    with pytest.raises(ParityError, match=r"x differ by up to 0\.11 from the network's; allowed is 0\.1"):
        compare(expected, expected + 0.11, "x")
    with pytest.raises(ParityError, match=r"x have shape \(1,\), the network's \(2,\)"):
        compare(expected, expected[:1], "x")
    with pytest.raises(ParityError, match="differ by up to nan"):
        compare(expected, np.array([np.nan, 1.0]), "x")
    assert compare(np.zeros((1, 0)), np.zeros((1, 0)), "a cache that holds nothing yet") == 0


def test_greedy_texts_may_part_at_a_tie_only() -> None:
    def second_best_at_the_fourth_token(
        tokens: np.ndarray, state: Arrays, logits: np.ndarray, after: Arrays
    ) -> tuple[np.ndarray, Arrays]:
        if after[-1] == 8:  # the prompt of 5 and three more
            logits[0, -1, logits[0, -1].argmax()] = -np.inf
        return logits, after

    parted = StandIn("gpt", second_best_at_the_fourth_token)
    prompt = np.array([[1, 2, 3, 4, 5]])
    with pytest.raises(ParityError, match="at place 3 of a greedy text"):
        compare_greedy(network("gpt"), parted, prompt, 1e-6)  # type: ignore[arg-type]
    assert compare_greedy(network("gpt"), parted, prompt, 1e6) == 3  # type: ignore[arg-type]
    assert compare_greedy(network("gpt"), StandIn("gpt"), prompt, 1e-6) == 64  # type: ignore[arg-type]
