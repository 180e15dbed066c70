"""Proof that an exported sequence model is the network it came from: outputs, state and text.

What both are held against is the network without a state, which reads whole sequences (with the mask of its window):
it has no cache that could be wrong.

Shapes: B sequences, T places, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlseq.errors import ParityError
from rlseq.exporter.parity import gap
from rlseq.exporter.sequence_compare import (
    BATCHES,
    LENGTHS,
    SEED,
    compare_outputs,
    compare_states,
    random_inputs,
)
from rlseq.exporter.sequence_padded import PIECES, check_answering, check_reading
from rlseq.nets.stepper import TorchSequence
from rlseq.player.generate import Stepper
from rlseq.player.sequence import OnnxSequence

STEPS = 12  # places one by one, at the beginning and across the window's edge
MAX_WHOLE = 1_024  # places of a whole sequence: attention takes memory by their square
GREEDY_TOKENS = 64


def check_sequence_parity(network: TorchSequence, exported: OnnxSequence) -> dict[str, Any]:
    """Compare network and exported graph.

    Args:
        network: the original.
        exported: the graph.

    Returns:
        The report that goes into the file.

    Raises:
        ParityError: outputs or state differ by more than rounding, padding makes a difference, or another token is
            chosen where the best two are clearly apart.
    """
    spec = network.spec
    if spec.one_pass:
        return check_reading(network, exported)
    if spec.signature.kind == "translate":
        error, stepwise = check_answering(network, exported), sum(PIECES)
    else:
        error, stepwise = check_stepping(network, exported), sum(pieces_for(spec.window))
    report = {
        "batch_sizes": list(BATCHES),
        "lengths": list(LENGTHS),
        "stepwise_tokens": stepwise,
        "max_error": error,
        "seed": SEED,
    }
    if spec.signature.reads_tokens:
        prompt_BT = random_inputs(spec, np.random.default_rng(SEED), 1, LENGTHS[1])
        report["greedy_tokens"] = GREEDY_TOKENS
        report["greedy_tokens_equal"] = compare_greedy(network, exported, prompt_BT, error)
    if spec.signature.kind == "translate":
        report["padded_rows"] = True
    return report


def check_stepping(network: TorchSequence, exported: OnnxSequence) -> float:
    """Largest difference of models that read place by place; see `check_sequence_parity`."""
    rng, spec = np.random.default_rng(SEED), network.spec
    pieces = pieces_for(spec.window)
    errors = []
    for batch in BATCHES:
        for length in LENGTHS:
            errors.append(compare_whole(network, exported, random_inputs(spec, rng, batch, length)))
        errors.append(compare_pieces(network, exported, random_inputs(spec, rng, batch, sum(pieces)), pieces))
        errors.append(compare_full(network, exported, batch, rng))
    return max(errors)


def pieces_for(window: int | None) -> list[int]:
    """How a sequence is cut: a prompt, single places, then one piece up to the window's edge and single ones over it.

    A window too long for a whole sequence is left to `compare_full`.
    """
    begin = [LENGTHS[-1], *[1] * STEPS]
    edge = 0 if window is None else min(window, MAX_WHOLE) - STEPS // 2 - sum(begin)
    return [*begin, *([edge] if edge > 0 else []), *[1] * STEPS, LENGTHS[1]]


def compare_whole(network: TorchSequence, exported: OnnxSequence, inputs: np.ndarray) -> float:
    """Largest difference of outputs and state after whole sequences.

    Raises:
        ParityError: see `check_sequence_parity`.
    """
    batch, what = len(inputs), f"inputs {inputs.shape}"
    outputs, state = exported.step(inputs, exported.initial_state(batch))
    error = compare_outputs(network.spec, network.whole(inputs), outputs, f"outputs of {what}")
    _, expected = network.step(inputs, network.initial_state(batch))
    return max(error, compare_states(expected, state, exported, what))


def compare_pieces(network: TorchSequence, exported: OnnxSequence, inputs: np.ndarray, pieces: Sequence[int]) -> float:
    """Largest difference of outputs between the network on whole sequences and the graph on pieces of them.

    Raises:
        ParityError: see `check_sequence_parity`.
    """
    state, start, found = exported.initial_state(len(inputs)), 0, []
    for length in pieces:
        outputs, state = exported.step(inputs[:, start : start + length], state)
        found.append(outputs)
        start += length
    what = f"outputs of inputs {inputs.shape}, stepwise"
    return compare_outputs(network.spec, network.whole(inputs), np.concatenate(found, 1), what)


def compare_full(network: TorchSequence, exported: OnnxSequence, batch: int, rng: np.random.Generator) -> float:
    """Largest difference of outputs and state after a few places from a random state, as full as it can be.

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
    inputs = random_inputs(network.spec, rng, batch, 3)
    wanted, expected = network.step(inputs, network.from_numpy(state))
    outputs, after = exported.step(inputs, state)
    error = compare_outputs(network.spec, wanted, outputs, "outputs from a full state")
    return max(error, compare_states(expected, after, exported, "a full state"))


def compare_greedy(network: TorchSequence, exported: OnnxSequence, prompt_BT: np.ndarray, error: float) -> int:
    """How many tokens of a greedy text are equal; if not all are, they must have parted at a tie.

    Args:
        network: the original.
        exported: the graph.
        prompt_BT: what the text begins with, or the source that it answers to; one row.
        error: the largest difference of logits.

    Raises:
        ParityError: they parted where the best two tokens were clearly apart.
    """
    first: dict[str, Any] = {}
    if network.spec.signature.kind == "translate":
        first = {"source": prompt_BT, "given": np.ones(prompt_BT.shape, np.bool_)}
        prompt_BT = np.array([[network.spec.signature.start]])
    steppers: tuple[Stepper, Stepper] = (network, exported)
    sides = [(stepper, stepper.initial_state(1), prompt_BT) for stepper in steppers]
    for place in range(GREEDY_TOKENS):
        stepped = [stepper.step(tokens_BT, state, **first) for stepper, state, tokens_BT in sides]
        best = [int(logits_BTV[0, -1].argmax()) for logits_BTV, _ in stepped]
        if best[0] != best[1]:
            apart = float(gap(stepped[0][0][0, -1:])[0])
            if apart > 2 * error:
                raise ParityError(
                    f"the exported graph wrote the token {best[1]} where the network writes {best[0]}, at place "
                    f"{place} of a greedy text; the network's best two logits are {apart:.3g} apart."
                )
            return place
        first = {}
        sides = [
            (stepper, state, np.array([[token]]))
            for (stepper, _, _), (_, state), token in zip(sides, stepped, best, strict=True)
        ]
    return GREEDY_TOKENS
