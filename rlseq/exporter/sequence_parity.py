"""Proof that an exported sequence model is the network it came from: logits, state and text.

What both are held against is the network without a state, which reads whole sequences (with the mask of its window):
it has no cache that could be wrong.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlseq.errors import ParityError
from rlseq.exporter.parity import TOLERANCE, gap
from rlseq.nets.stepper import TorchSequence
from rlseq.player.generate import Stepper
from rlseq.player.sequence import OnnxSequence

SEED = 2_000_000
BATCHES = (1, 3)
LENGTHS = (1, 5, 17)
STEPS = 12  # tokens one by one, at the beginning and across the window's edge
MAX_WHOLE = 1_024  # tokens of a whole sequence: attention takes memory by their square
GREEDY_TOKENS = 64


def check_sequence_parity(network: TorchSequence, exported: OnnxSequence) -> dict[str, Any]:
    """Compare network and exported graph.

    Args:
        network: the original.
        exported: the graph.

    Returns:
        The report that goes into the file.

    Raises:
        ParityError: logits or state differ by more than rounding, or another token is chosen where the best two are
            clearly apart.
    """
    rng = np.random.default_rng(SEED)
    vocabulary, window = network.spec.vocabulary, network.spec.window
    pieces = pieces_for(window)
    errors = []
    for batch in BATCHES:
        for length in LENGTHS:
            tokens_BT = rng.integers(0, vocabulary, (batch, length))
            errors.append(compare_whole(network, exported, tokens_BT))
        tokens_BT = rng.integers(0, vocabulary, (batch, sum(pieces)))
        errors.append(compare_pieces(network, exported, tokens_BT, pieces))
        errors.append(compare_full(network, exported, batch, rng))
    error = max(errors)
    greedy = compare_greedy(network, exported, rng.integers(0, vocabulary, (1, LENGTHS[1])), error)
    return {
        "batch_sizes": list(BATCHES),
        "lengths": list(LENGTHS),
        "stepwise_tokens": sum(pieces),
        "max_error": error,
        "greedy_tokens": GREEDY_TOKENS,
        "greedy_tokens_equal": greedy,
        "seed": SEED,
    }


def pieces_for(window: int | None) -> list[int]:
    """How a sequence is cut: a prompt, single tokens, then one piece up to the window's edge and single tokens over it.

    A window too long for a whole sequence is left to `compare_full`.
    """
    begin = [LENGTHS[-1], *[1] * STEPS]
    edge = 0 if window is None else min(window, MAX_WHOLE) - STEPS // 2 - sum(begin)
    return [*begin, *([edge] if edge > 0 else []), *[1] * STEPS, LENGTHS[1]]


def compare_whole(network: TorchSequence, exported: OnnxSequence, tokens_BT: np.ndarray) -> float:
    """Largest difference of logits and state after whole sequences.

    Raises:
        ParityError: see `check_sequence_parity`.
    """
    batch = len(tokens_BT)
    logits_BTV, state = exported.step(tokens_BT, exported.initial_state(batch))
    error = compare(network.whole(tokens_BT), logits_BTV, f"logits of {tokens_BT.shape} tokens")
    _, expected = network.step(tokens_BT, network.initial_state(batch))
    return max(error, _compare_states(expected, state, exported, f"{tokens_BT.shape} tokens"))


def compare_pieces(
    network: TorchSequence, exported: OnnxSequence, tokens_BT: np.ndarray, pieces: Sequence[int]
) -> float:
    """Largest difference of logits between the network on whole sequences and the graph on pieces of them.

    Raises:
        ParityError: see `check_sequence_parity`.
    """
    state, start, found = exported.initial_state(len(tokens_BT)), 0, []
    for length in pieces:
        logits_BTV, state = exported.step(tokens_BT[:, start : start + length], state)
        found.append(logits_BTV)
        start += length
    return compare(network.whole(tokens_BT), np.concatenate(found, 1), f"logits of {tokens_BT.shape} tokens, stepwise")


def compare_full(network: TorchSequence, exported: OnnxSequence, batch: int, rng: np.random.Generator) -> float:
    """Largest difference of logits and state after a few tokens from a random state, as full as it can be.

    Raises:
        ParityError: see `check_sequence_parity`.
    """
    past = (network.spec.window or 1) - 1
    sizes = {"batch": batch, "past": past}
    state = tuple(
        np.asarray(past, leaf.dtype)  # the position
        if leaf.dtype == "int64"
        else rng.normal(size=[sizes[n] if isinstance(n, str) else n for n in leaf.shape]).astype(leaf.dtype)
        for leaf in network.spec.state
    )
    tokens_BT = rng.integers(0, network.spec.vocabulary, (batch, 3))
    expected_BTV, expected = network.step(tokens_BT, network.from_numpy(state))
    logits_BTV, after = exported.step(tokens_BT, state)
    error = compare(expected_BTV, logits_BTV, "logits from a full state")
    return max(error, _compare_states(expected, after, exported, "a full state"))


def _compare_states(expected: Sequence[Any], found: Sequence[np.ndarray], exported: OnnxSequence, after: str) -> float:
    leaves = zip(exported.spec.state, expected, found, strict=True)
    return max(
        (compare(want.cpu().numpy(), have, f"{leaf.output} after {after}") for leaf, want, have in leaves), default=0.0
    )


def compare(expected: np.ndarray, found: np.ndarray, what: str) -> float:
    """Largest difference.

    Raises:
        ParityError: shapes differ, or numbers by more than rounding.
    """
    if not np.isfinite(expected).all():
        raise ParityError(f"the network's {what} are NaN or infinite: its weights have diverged.")
    if expected.shape != found.shape:
        raise ParityError(f"the exported graph's {what} have shape {found.shape}, the network's {expected.shape}.")
    error = float(np.abs(expected - found).max(initial=0.0))
    allowed = TOLERANCE * max(1.0, float(np.abs(expected).max(initial=0.0)))
    if not error <= allowed:
        raise ParityError(
            f"the exported graph's {what} differ by up to {error:.3g} from the network's; allowed is {allowed:.3g}."
        )
    return error


def compare_greedy(network: TorchSequence, exported: OnnxSequence, prompt_BT: np.ndarray, error: float) -> int:
    """How many tokens of a greedy text are equal; if not all are, they must have parted at a tie.

    Raises:
        ParityError: they parted where the best two tokens were clearly apart.
    """
    steppers: tuple[Stepper, Stepper] = (network, exported)
    sides = [(stepper, stepper.initial_state(1), prompt_BT) for stepper in steppers]
    for place in range(GREEDY_TOKENS):
        stepped = [stepper.step(tokens_BT, state) for stepper, state, tokens_BT in sides]
        best = [int(logits_BTV[0, -1].argmax()) for logits_BTV, _ in stepped]
        if best[0] != best[1]:
            apart = float(gap(stepped[0][0][0, -1:])[0])
            if apart > 2 * error:
                raise ParityError(
                    f"the exported graph wrote the token {best[1]} where the network writes {best[0]}, at place "
                    f"{place} of a greedy text; the network's best two logits are {apart:.3g} apart."
                )
            return place
        sides = [
            (stepper, state, np.array([[token]]))
            for (stepper, _, _), (_, state), token in zip(sides, stepped, best, strict=True)
        ]
    return GREEDY_TOKENS
