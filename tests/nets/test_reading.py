"""Networks that read a whole sequence at once: padding never matters, and they are torch's own layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import NetInput, seeded
from rlseq.nets.reading import BothWaysCore, EncoderCore, ReadingNetwork
from rlseq.sequence import Signature
from tests.nets.test_attention import scale_queries_and_keys
from tests.nets.test_readers import CLASSIFY, FORECAST, SCALE, SHIFT, values

LENGTHS = (7, 3, 1, 0)
every_core = pytest.mark.parametrize("core", ["encoder", "lstm", "gru"])
every_signature = pytest.mark.parametrize("signature", [CLASSIFY, FORECAST], ids=["classify", "forecast"])


def made(core: Any, signature: Signature = CLASSIFY, **options: Any) -> ReadingNetwork:
    """A small network in evaluation, its answers far from zero."""
    heads = 2 if core == "encoder" else None
    chosen = SequenceNetOptions(**{"core": core, "layers": 2, "width": 16, "heads": heads, **options})
    net = seeded(0, lambda: ReadingNetwork(signature, chosen, 8)).eval()
    assert isinstance(net, ReadingNetwork)
    with torch.no_grad():
        net.head.weight.mul_(30.0)
        for parameter in net.parameters():
            if parameter.ndim == 1:  # biases that are not zero, norms that are not one
                parameter.add_(torch.from_numpy(np.random.default_rng(1).normal(size=len(parameter)) * 0.1).float())
    return net


def rows(time: int = 7) -> tuple[Tensor, Tensor]:
    """Values `[4, T, 3]` with `LENGTHS` real places, and which those are."""
    return values(len(LENGTHS), time), torch.arange(time) < torch.tensor(LENGTHS)[:, None]


def test_mimetic_weights_begin_with_equal_queries_and_keys() -> None:
    for mimetic in (True, False):
        found = [part for part in made("encoder", mimetic=mimetic).modules() if isinstance(part, nn.MultiheadAttention)]
        assert len(found) == 2
        for part in found:
            q, k, _ = part.in_proj_weight.chunk(3)
            assert torch.equal(q, k) == mimetic


@torch.no_grad()
def test_with_normalised_queries_and_keys_their_size_means_nothing() -> None:
    for qk_norm in (True, False):
        net, (raw, given) = made("encoder", qk_norm=qk_norm), rows()
        before = net(NetInput((raw,), mask=given))[0]
        scale_queries_and_keys(net)
        after = net(NetInput((raw,), mask=given))[0]
        assert torch.allclose(after, before, rtol=1e-3, atol=1e-3) == qk_norm


@every_core
@every_signature
@pytest.mark.parametrize("training", [False, True])
@torch.no_grad()
def test_what_stands_at_padding_changes_nothing_nor_does_more_of_it(
    core: str, signature: Signature, training: bool
) -> None:
    net, (raw, given) = made(core, signature).train(training), rows()
    answers, state = net(NetInput((raw,), mask=given))
    assert answers.shape == (4, 1, signature.num_outputs)
    assert state == ()
    assert answers[:3].std() > 0.1
    changed = torch.where(given[..., None], raw, torch.tensor(torch.nan))
    assert torch.equal(net(NetInput((changed,), mask=given))[0], answers)
    longer = F.pad(raw, (0, 0, 0, 5), value=1e6), F.pad(given, (0, 5))
    torch.testing.assert_close(net(NetInput(longer[:1], mask=longer[1]))[0], answers, rtol=1e-5, atol=1e-5)
    for row, length in enumerate(LENGTHS[:3]):
        alone = net(NetInput((raw[row : row + 1, :length],)))[0]
        torch.testing.assert_close(alone[0], answers[row], rtol=1e-5, atol=1e-5)


@every_core
@every_signature
def test_a_row_without_a_real_place_is_finite_and_gives_no_gradient(core: str, signature: Signature) -> None:
    net, raw = made(core, signature).train(), values(2, 5)
    answers = net(NetInput((raw,), mask=torch.zeros(2, 5, dtype=torch.bool)))[0]
    rest = 0.0 if signature.kind == "classify" else SHIFT[1]
    assert torch.equal(answers, torch.full_like(answers, rest))
    (answers**2).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() == 0, name


@every_core
def test_a_class_is_of_the_mean_over_real_places_and_a_forecast_of_the_last(core: str) -> None:
    raw, given = rows()
    for signature in (CLASSIFY, FORECAST):
        net = made(core, signature)
        hidden: list[Tensor] = []
        net.norm.register_forward_hook(lambda module, x, y, kept=hidden: kept.append(y))
        answers = net(NetInput((raw,), mask=given))[0]
        for row, length in enumerate(LENGTHS[:3]):
            if signature is CLASSIFY:
                expected = net.head(hidden[0][row, :length].mean(0))
            else:
                expected = raw[row, length - 1, 1] + SCALE[1] * net.head(hidden[0][row, length - 1])
            torch.testing.assert_close(answers[row, 0], expected)


@torch.no_grad()
def test_the_encoder_is_torchs_own() -> None:
    net, (raw, given) = made("encoder"), rows()
    assert isinstance(net.core, EncoderCore)
    x_BTD = net.reader(raw, given) + net.core.positions(torch.arange(7))
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        expected = net.core.encoder(x_BTD[:3], src_key_padding_mask=~given[:3])
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    found = net.core(net.reader(raw, given), given)
    assert expected.std() > 0.3
    torch.testing.assert_close(found[:3][given[:3]], expected[given[:3]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("core", ["lstm", "gru"])
@torch.no_grad()
def test_both_ways_is_what_torch_computes_of_packed_sequences(core: str) -> None:
    net, (raw, given) = made(core), rows()
    assert isinstance(net.core, BothWaysCore)
    torchs = (nn.LSTM if core == "lstm" else nn.GRU)(16, 8, 2, batch_first=True, bidirectional=True)
    for layer in range(2):
        for ours, suffix in ((net.core.forwards, ""), (net.core.backwards, "_reverse")):
            for name, parameter in ours[layer].named_parameters():
                getattr(torchs, name.replace("_l0", f"_l{layer}{suffix}")).copy_(parameter)
    x_BTD = net.reader(raw, given)
    packed = pack_padded_sequence(x_BTD[:3], torch.tensor(LENGTHS[:3]), batch_first=True)
    expected = pad_packed_sequence(torchs(packed)[0], batch_first=True)[0]
    found = net.core(x_BTD, given)
    assert expected.std() > 0.1
    torch.testing.assert_close(found[:3][given[:3]], expected[given[:3]], rtol=1e-5, atol=1e-5)


@every_core
def test_evaluating_twice_gives_the_same_with_dropout(core: str) -> None:
    net, given = made(core, dropout=0.5), NetInput((values(2, 7),))
    assert torch.equal(net(given)[0], net(given)[0])
    net.train()
    assert not torch.equal(net(given)[0], net(given)[0])


@every_core
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_low_precision_answers_stay_float32_finite_and_near(core: str, dtype: torch.dtype) -> None:
    net, (raw, given) = made(core), rows()
    with torch.autocast("cpu", dtype=dtype):
        low = net(NetInput((raw,), mask=given))[0]
    exact = net(NetInput((raw,), mask=given))[0]
    assert low.dtype == torch.float32
    assert torch.isfinite(low).all()
    torch.testing.assert_close(low, exact, rtol=0.0, atol=0.1 * float(exact.detach().std()))


@every_core
def test_which_half_holds_the_peak_is_learnt(core: str) -> None:
    """Neither the mean nor the last place says it: order matters, and padding differs."""
    net, rng = made(core).train(), np.random.default_rng(0)
    z = rng.normal(size=(64, 8, 3)) * 0.1
    length = rng.integers(4, 9, size=64)
    peak = (rng.random(64) * length).astype(int)
    z[np.arange(64), peak, 0] += 3.0
    raw = torch.from_numpy(z * np.array(SCALE) + np.array(SHIFT)).float()
    given = torch.from_numpy(np.arange(8) < length[:, None])
    target = torch.from_numpy((peak >= 4).astype(int))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(60):
        loss = F.cross_entropy(net(NetInput((raw,), mask=given))[0][:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


def test_queries_keys_and_values_are_told_apart() -> None:
    assert made("encoder").stacked == {f"core.encoder.layers.{n}.self_attn.in_proj_weight": 3 for n in range(2)}
    assert made("lstm").stacked == {}
    assert made("lstm").initial_state(2) == ()
