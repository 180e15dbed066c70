"""The proof of export finds wrong graphs of models that read at once, or a source; the graphs are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from rlseq.errors import ParityError
from rlseq.exporter.sequence_compare import compare_outputs, padding, random_inputs
from rlseq.exporter.sequence_padded import check_answering
from rlseq.exporter.sequence_parity import check_sequence_parity
from rlseq.nets.stepper import TorchSequence
from tests.sequence_kinds import SERIES, small_model

Arrays = tuple[np.ndarray, ...]
ANSWERS = "reverse-transformer"
NAMES = (ANSWERS, *SERIES)


class Call:
    """What a graph was called with, and what the network gives for it."""

    def __init__(self, inputs: Any, state: Arrays, source: Any, given: Any, outputs: np.ndarray, after: Arrays) -> None:
        self.inputs, self.state, self.source, self.given = inputs, state, source, given
        self.outputs, self.after = outputs, after


class StandIn:
    """A graph that does as the network does, but for what `change` does to a call."""

    def __init__(self, name: str, change: Callable[[Call], None] = lambda call: None) -> None:
        self.network = network(name)
        self.spec = self.network.spec
        self.change = change

    def initial_state(self, batch: int) -> Arrays:
        return tuple(leaf.zeros(batch) for leaf in self.spec.state)

    def whole(self, inputs: np.ndarray, given: Any = None, source: Any = None) -> np.ndarray:
        return self.step(inputs, self.initial_state(len(inputs)), source=source, given=given)[0]

    def step(self, inputs: np.ndarray, state: Arrays, *, source: Any = None, given: Any = None) -> Any:
        outputs, after = self.network.step(inputs, self.network.from_numpy(state), source=source, given=given)
        call = Call(inputs, state, source, given, outputs.copy(), tuple(array.numpy().copy() for array in after))
        self.change(call)
        return call.outputs, call.after


def network(name: str) -> TorchSequence:
    return TorchSequence(small_model(name).net, small_model(name).spec)


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_graph_passes(name: str) -> None:
    report = check_sequence_parity(network(name), StandIn(name))  # type: ignore[arg-type]
    assert 0 <= report.pop("max_error") < 1e-4
    more: dict[str, Any] = {}
    if name == ANSWERS:
        more = {"stepwise_tokens": 6, "greedy_tokens": 64, "greedy_tokens_equal": 64, "padded_rows": True}
    elif small_model(name).spec.one_pass:
        more = {"padded_rows": True}
    else:
        more = {"stepwise_tokens": 46}
    assert report == {"batch_sizes": [1, 3], "lengths": [1, 5, 17], "seed": 2_000_000, **more}


def off_by_a_little(call: Call) -> None:
    call.outputs += 0.01


def wrong_in_the_second_row(call: Call) -> None:
    call.outputs[1:] = call.outputs[:1]


def nan_where_nothing_is_real(call: Call) -> None:
    if call.given is not None and call.given.shape[1]:
        call.outputs[~call.given.any(1)] = np.nan


def other_where_nothing_is_real(call: Call) -> None:
    if call.given is not None and call.given.shape[1]:
        call.outputs[~call.given.any(1)] += 1.0


def wrong_beyond_the_examples_length(call: Call) -> None:
    read = call.inputs if call.source is None else call.source
    if read.shape[1] > 5:
        call.outputs += 1.0


def reads_padding(call: Call) -> None:
    if call.given is not None:
        call.outputs[(~call.given).any(1)] += 0.01


def other_where_nothing_is_real_in_a_batch_of_one(call: Call) -> None:
    if len(call.inputs) == 1:
        other_where_nothing_is_real(call)


def forgets_the_source(call: Call) -> None:
    call.after = tuple(np.zeros_like(array) if array.dtype == bool else array for array in call.after)


def forgets_the_answer(call: Call) -> None:
    call.after = tuple(array * 0 if n < 2 else array for n, array in enumerate(call.after))


def writes_another_token_once(call: Call) -> None:
    if len(call.inputs) == 1 and int(call.state[-1]) == 9:  # beyond what is compared in numbers
        call.outputs[0, -1] = -call.outputs[0, -1]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, off_by_a_little) for name in ("waveforms-encoder", "waveforms-gpt", ANSWERS)),
        *((name, wrong_in_the_second_row) for name in NAMES),
        *((name, wrong_beyond_the_examples_length) for name in NAMES),
        *(
            (name, change)
            for name in (ANSWERS, "waveforms-encoder", "lorenz-gru")
            for change in (
                nan_where_nothing_is_real,
                other_where_nothing_is_real,
                other_where_nothing_is_real_in_a_batch_of_one,
                reads_padding,
            )
        ),
        (ANSWERS, forgets_the_source),
        (ANSWERS, forgets_the_answer),
        (ANSWERS, writes_another_token_once),
    ],
)
def test_a_wrong_graph_is_found(name: str, change: Callable[[Call], None]) -> None:
    if change is reads_padding and name != ANSWERS:
        # The network itself would have to read it: a row alone, without padding, then has another answer.
        reader = network(name)
        whole = reader.whole
        reader.whole = lambda inputs, given=None: whole(inputs + 0.1 * (given is not None and not given.all()), given)
        wrong = StandIn(name)
        wrong.network = reader
        wrong.whole = lambda inputs, given=None: reader.whole(inputs, given)
        with pytest.raises(ParityError, match=r"row \d alone, differ by up to"):
            check_sequence_parity(reader, wrong)  # type: ignore[arg-type]
        return
    with pytest.raises(ParityError, match=r"the exported graph('s .*differ by up to| wrote the token)"):
        check_sequence_parity(network(name), StandIn(name, change))  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [forgets_the_source, forgets_the_answer])
def test_what_is_forgotten_shows_in_the_numbers_of_the_tokens_that_follow(change: Callable[[Call], None]) -> None:
    def in_outputs_only(call: Call) -> None:
        if int(call.state[-1]) and call.source is None:
            right = call.after
            forgetful = Call(call.inputs, call.state, None, None, call.outputs, call.state)
            change(forgetful)
            sequence = network(ANSWERS)
            call.outputs, _ = sequence.step(call.inputs, sequence.from_numpy(forgetful.after))
            call.after = right

    with pytest.raises(ParityError, match=r"logits of \(\d, 6\) tokens to a source of \(\d, \d+\) differ by up to"):
        check_answering(network(ANSWERS), StandIn(ANSWERS, in_outputs_only))  # type: ignore[arg-type]


def test_rows_are_padded_in_part_and_wholly() -> None:
    assert padding(3, 5).sum(1).tolist() == [5, 0, 3]
    assert padding(1, 17).all() and padding(3, 1).sum(1).tolist() == [1, 0, 1]


def test_values_are_drawn_as_the_training_data_are_distributed() -> None:
    spec = small_model("lorenz-gru").spec
    values_BTF = random_inputs(spec, np.random.default_rng(0), 3, 4000)
    assert values_BTF.dtype == np.float32
    np.testing.assert_allclose(values_BTF.mean((0, 1)), spec.signature.shift, atol=0.5)
    np.testing.assert_allclose(values_BTF.std((0, 1)), spec.signature.scale, rtol=0.05)


def test_forecasts_are_compared_in_standard_deviations_of_the_target() -> None:
    signature = msgspec.structs.replace(
        small_model("lorenz-gru").spec.signature, shift=(5.0, 0.0, 0.0), scale=(1e-3, 1.0, 1.0), target=0
    )
    spec = msgspec.structs.replace(small_model("lorenz-gru").spec, signature=signature)
    expected = np.full((1, 1, 2), 5.0, np.float32)
    # A tenth of a standard deviation is next to nothing beside 5, and wrong all the same.
    with pytest.raises(ParityError, match=r"differ by up to 0\.1 from"):
        compare_outputs(spec, expected, expected + np.float32(1e-4), "x")
    # The last digit of a float32 is no error.
    assert compare_outputs(spec, expected, np.nextafter(expected, np.float32(6)), "x") == pytest.approx(
        4.77e-4, rel=0.01
    )


@pytest.mark.parametrize("name", ["waveforms-encoder", ANSWERS])
def test_weights_that_have_diverged_are_named_as_such(name: str) -> None:
    diverged = StandIn(name)
    state = {key: value.clone() for key, value in diverged.network.net.state_dict().items()}
    try:
        with torch.no_grad():
            next(diverged.network.net.parameters())[:] = torch.inf
        with pytest.raises(ParityError, match="are NaN or infinite: its weights have diverged"):
            check_sequence_parity(diverged.network, diverged)  # type: ignore[arg-type]
    finally:
        diverged.network.net.load_state_dict(state)
