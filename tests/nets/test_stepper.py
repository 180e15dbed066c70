"""Stepping through a text equals reading it whole (case T10), and asking twice gives the same (T9)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlseq.nets.network import NetInput
from rlseq.nets.stepper import TorchSequence
from rlseq.player.generate import generate
from rlseq.player.sampling import GREEDY
from tests.sequences import CONTEXT, CORES, WINDOW, assert_close, small_network, spec_of

PIECES = {
    "one by one": [1] * 40,
    "a prompt, then one by one": [7] + [1] * 33,
    "a prompt longer than the window and the context": [25] + [1] * 15,
    "one query against a full window, then many": [WINDOW - 1, 1, 1, 20, 1, 6],
    "at the context's edge": [CONTEXT - 1, 1, 1, 1, CONTEXT, 6],
    "at once": [40],
}


def stepper(core: str) -> TorchSequence:
    net = small_network(core)
    return TorchSequence(net, spec_of(net, core))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("batch", [1, 3])
def test_pieces_equal_the_whole(core: str, pieces: list[int], batch: int) -> None:
    sequence = stepper(core)
    tokens_BT = np.random.default_rng(batch).integers(0, 11, (batch, sum(pieces)))
    state, start, found = sequence.initial_state(batch), 0, []
    for length in pieces:
        logits_BTV, state = sequence.step(tokens_BT[:, start : start + length], state)
        found.append(logits_BTV)
        start += length
    assert_close(np.concatenate(found, 1), sequence.whole(tokens_BT))


@pytest.mark.parametrize("core", CORES)
def test_greedy_text_is_the_same_without_a_cache(core: str) -> None:
    sequence = stepper(core)
    prompt = np.array([3, 1, 4])
    made = list(generate(sequence, prompt, 40, GREEDY, np.random.default_rng(0)))
    tokens = prompt.tolist()
    for _ in range(40):
        tokens.append(int(sequence.whole(np.array([tokens]))[0, -1].argmax()))
    assert made == tokens[3:]
    assert len(set(made)) > 2  # no text that any broken cache would write too


@pytest.mark.parametrize("core", CORES)
def test_no_dropout_no_gradient_and_the_network_is_left_as_it_was(core: str) -> None:
    sequence = stepper(core)
    tokens_BT = np.random.default_rng(0).integers(0, 11, (2, 9))
    assert sequence.net.training
    first, second = sequence.whole(tokens_BT), sequence.whole(tokens_BT)
    np.testing.assert_array_equal(first, second)
    assert sequence.net.training
    logits_BTV, state = sequence.step(tokens_BT, sequence.initial_state(2))
    assert not any(array.requires_grad for array in state) and logits_BTV.dtype == np.float32
    trained = sequence.net(NetInput((torch.from_numpy(tokens_BT),)))[0]
    assert np.abs(trained.detach().numpy() - first).max() > 1e-3  # with dropout


@pytest.mark.parametrize("core", CORES)
def test_the_state_given_in_stays_as_it_was(core: str) -> None:
    sequence = stepper(core)
    tokens_BT = np.random.default_rng(0).integers(0, 11, (2, 5))
    _, state = sequence.step(tokens_BT, sequence.initial_state(2))
    before = [array.clone() for array in state]
    first, _ = sequence.step(tokens_BT, state)
    again, _ = sequence.step(tokens_BT, state)
    np.testing.assert_array_equal(first, again)
    for array, kept in zip(state, before, strict=True):
        assert torch.equal(array, kept)


def test_a_state_may_come_from_numpy() -> None:
    sequence = stepper("lstm")
    tokens_BT = np.random.default_rng(0).integers(0, 11, (2, 5))
    zeros = tuple(leaf.zeros(2) for leaf in sequence.spec.state)
    np.testing.assert_array_equal(
        sequence.step(tokens_BT, sequence.from_numpy(zeros))[0], sequence.step(tokens_BT, sequence.initial_state(2))[0]
    )
