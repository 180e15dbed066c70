"""Proof of export for models that read rows of unequal length at once: encoders, and the sources of answers.

A row that is all padding belongs to it: masks of minus infinity make NaN of it in one runtime and not in the other.

Shapes: B sequences, T places, S places of a source.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlseq.exporter.sequence_compare import (
    BATCHES,
    LENGTHS,
    SEED,
    compare_outputs,
    compare_states,
    padding,
    random_inputs,
)
from rlseq.nets.stepper import TorchSequence
from rlseq.player.sequence import OnnxSequence

PIECES = (1, 3, 1, 1)  # an answer's first tokens are read with the source, those that follow by what was kept of it


def check_reading(network: TorchSequence, exported: OnnxSequence) -> dict[str, Any]:
    """Compare models that read a whole series and answer once; see `check_sequence_parity`."""
    rng = np.random.default_rng(SEED)
    error = 0.0
    for batch in BATCHES:
        for length in LENGTHS:
            values_BTF = random_inputs(network.spec, rng, batch, length)
            error = max(error, compare_padded(network, exported, values_BTF, padding(batch, length)))
            nothing_BT = np.zeros((batch, length), np.bool_)
            error = max(error, compare_padded(network, exported, values_BTF, nothing_BT))
    return {
        "batch_sizes": list(BATCHES),
        "lengths": list(LENGTHS),
        "padded_rows": True,
        "max_error": error,
        "seed": SEED,
    }


def compare_padded(
    network: TorchSequence, exported: OnnxSequence, values_BTF: np.ndarray, given_BT: np.ndarray
) -> float:
    """Largest difference of the answers to series with padding, and to each of them alone without it.

    Raises:
        ParityError: see `check_sequence_parity`.
    """
    found = exported.whole(values_BTF, given_BT)
    what = f"answers to series {values_BTF.shape} with padding"
    error = compare_outputs(network.spec, network.whole(values_BTF, given_BT), found, what)
    for row, length in enumerate(given_BT.sum(1)):
        if length:
            alone = network.whole(values_BTF[row : row + 1, :length])
            error = max(error, compare_outputs(network.spec, alone, found[row : row + 1], f"{what}, row {row} alone,"))
    return error


def check_answering(network: TorchSequence, exported: OnnxSequence) -> float:
    """Largest difference of models that answer to a source; see `check_sequence_parity`."""
    rng, spec = np.random.default_rng(SEED), network.spec
    errors = []
    for batch in BATCHES:
        for length, source in zip(LENGTHS, LENGTHS[1:] + LENGTHS[:1], strict=True):
            for num in (length, sum(PIECES)):  # whole, then in pieces
                tokens_BT, source_BS = (random_inputs(spec, rng, batch, n) for n in (num, source))
                pieces = PIECES if num == sum(PIECES) else (num,)
                errors.append(compare_answers(network, exported, tokens_BT, source_BS, padding(batch, source), pieces))
        nothing_BS = np.zeros(source_BS.shape, np.bool_)
        errors.append(compare_answers(network, exported, tokens_BT, source_BS, nothing_BS, PIECES))
    return max(errors)


def compare_answers(
    network: TorchSequence,
    exported: OnnxSequence,
    tokens_BT: np.ndarray,
    source_BS: np.ndarray,
    given_BS: np.ndarray,
    pieces: tuple[int, ...],
) -> float:
    """Largest difference of logits between the network on whole answers and the graph on pieces of them, and of state.

    Raises:
        ParityError: see `check_sequence_parity`.
    """
    spec, batch = network.spec, len(tokens_BT)
    what = f"logits of {tokens_BT.shape} tokens to a source of {source_BS.shape}"
    # The player hands no padding on. That the network reads none is seen where it reads the source as it is.
    first = {"source": np.where(given_BS, source_BS, 0), "given": given_BS}
    state, expected, found, start = exported.initial_state(batch), network.initial_state(batch), [], 0
    for length in pieces:
        piece_BT = tokens_BT[:, start : start + length]
        logits_BTV, state = exported.step(piece_BT, state, **first)
        _, expected = network.step(piece_BT, expected, **first)
        found.append(logits_BTV)
        first, start = {}, start + length
    logits_BTV = np.concatenate(found, 1)
    error = compare_outputs(spec, network.whole(tokens_BT, given_BS, source_BS), logits_BTV, what)
    for row, length in enumerate(given_BS.sum(1)):
        if length:
            alone = network.whole(tokens_BT[row : row + 1], None, source_BS[row : row + 1, :length])
            error = max(error, compare_outputs(spec, alone, logits_BTV[row : row + 1], f"{what}, row {row} alone,"))
    return max(error, compare_states(expected, state, exported, what))
