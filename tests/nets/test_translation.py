"""The encoder-decoder is `nn.Transformer`, whole, in chunks and token by token, whatever the padding of its sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import NetInput, num_parameters, seeded
from rlseq.nets.translation import TranslationNetwork
from rlseq.sequence import Signature
from tests.nets.test_attention import scale_queries_and_keys

V, LENGTHS = 11, (6, 2, 4, 0)
SIGNATURE = Signature(kind="translate", vocabulary=V, start=9, end=10)


def made(**options: Any) -> TranslationNetwork:
    """A small network in evaluation, its logits far from zero."""
    chosen = SequenceNetOptions(**{"core": "transformer", "layers": 2, "heads": 2, "width": 16, **options})
    net = seeded(0, lambda: TranslationNetwork(SIGNATURE, chosen, 8)).eval()
    assert isinstance(net, TranslationNetwork)
    with torch.no_grad():
        if net.head is not None:
            net.head.weight.mul_(30.0)
        for parameter in net.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.from_numpy(np.random.default_rng(1).normal(size=len(parameter)) * 0.1).float())
    return net


def drawn(batch: int, time: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(V, size=(batch, time)))


def sources(batch: int = 4) -> tuple[Tensor, Tensor]:
    """Sources `[B, 6]` of `LENGTHS` real tokens, and which those are."""
    return drawn(batch, 6, seed=1), torch.arange(6) < torch.tensor(LENGTHS[:batch])[:, None]


def whole(net: TranslationNetwork, tokens_BT: Tensor, source_BS: Tensor, given_BS: Tensor | None) -> Tensor:
    return net(NetInput((tokens_BT, source_BS), mask=given_BS))[0]


@pytest.mark.parametrize("activation", [None, "relu"])
@torch.no_grad()
def test_it_is_torchs_own_transformer(activation: str | None) -> None:
    net, tokens_BT, (source_BS, given_BS) = made(activation=activation), drawn(3, 5), sources(3)
    found = whole(net, tokens_BT, source_BS, given_BS)

    def embedded(tokens: Tensor) -> Tensor:
        return net.embedding(tokens) * 4.0 + net.positions(torch.arange(tokens.shape[1]))

    torch.backends.mha.set_fastpath_enabled(False)
    try:
        hidden = net.core(
            embedded(source_BS),
            embedded(tokens_BT),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(5).isinf(),
            src_key_padding_mask=~given_BS,
            memory_key_padding_mask=~given_BS,
            tgt_is_causal=True,
        )
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert net.head is not None
    expected = net.head(hidden)
    assert expected.std() > 0.5
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_in_training_its_gradients_are_torchs() -> None:
    net, tokens_BT, (source_BS, given_BS) = made().train(), drawn(3, 5), sources(3)
    whole(net, tokens_BT, source_BS, given_BS).square().mean().backward()
    ours = {name: parameter.grad.clone() for name, parameter in net.named_parameters() if parameter.grad is not None}
    net.zero_grad()
    scaled = [
        net.embedding(tokens) * 4.0 + net.positions(torch.arange(tokens.shape[1])) for tokens in (source_BS, tokens_BT)
    ]
    mask = nn.Transformer.generate_square_subsequent_mask(5).isinf()
    hidden = net.core(*scaled, tgt_mask=mask, src_key_padding_mask=~given_BS, memory_key_padding_mask=~given_BS)
    assert net.head is not None
    net.head(hidden).square().mean().backward()
    assert len(ours) == len(list(net.parameters()))
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_mimetic_weights_are_in_every_attention_and_only_where_they_are_asked_for() -> None:
    for mimetic in (True, False):
        found = [part for part in made(mimetic=mimetic).modules() if isinstance(part, nn.MultiheadAttention)]
        assert len(found) == 6  # of two layers of the encoder one, of the decoder two
        for part in found:
            q, k, _ = part.in_proj_weight.chunk(3)
            assert torch.equal(q, k) == mimetic


@torch.no_grad()
def test_with_normalised_queries_and_keys_their_size_means_nothing_anywhere() -> None:
    for qk_norm in (True, False):
        net, tokens_BT, (source_BS, given_BS) = made(qk_norm=qk_norm), drawn(3, 5), sources(3)
        before = whole(net, tokens_BT, source_BS, given_BS)
        scale_queries_and_keys(net)
        after = whole(net, tokens_BT, source_BS, given_BS)
        assert torch.allclose(after, before, rtol=1e-3, atol=1e-3) == qk_norm


@torch.no_grad()
@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("sizes", [[1] * 9, [9], [2, 1, 6], [4, 5]], ids=str)
def test_a_source_read_once_serves_every_later_step(sizes: list[int], qk_norm: bool) -> None:
    net, tokens_BT, (source_BS, given_BS) = made(qk_norm=qk_norm), drawn(4, 9), sources()
    state, parts = net.initial_state(4), []
    for chunk in tokens_BT.split(sizes, 1):
        logits, state = net(NetInput((chunk, source_BS), mask=given_BS), state)
        parts.append(logits)
        source_BS, given_BS = source_BS[:, :0], given_BS[:, :0]  # read already
    expected = whole(net, tokens_BT, *sources())
    assert expected.std() > 0.5
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_state_is_what_its_leaves_say() -> None:
    net, (source_BS, given_BS) = made(), sources(3)
    state, size = net.initial_state(3), {"batch": 3, "past": 0, "source": 0}
    for taken in (0, 2, 1):
        if taken:
            _, state = net(NetInput((drawn(3, taken), source_BS), mask=given_BS), state)
            source_BS, given_BS = source_BS[:, :0], given_BS[:, :0]
            size = {"batch": 3, "past": size["past"] + taken, "source": 6}
        for leaf, tensor in zip(net.state_leaves, state, strict=True):
            assert tuple(tensor.shape) == tuple(size[n] if isinstance(n, str) else n for n in leaf.shape)
            assert str(tensor.dtype) == f"torch.{leaf.dtype}"
    assert int(state[-1]) == 3
    names = {name for leaf in net.state_leaves for name in (leaf.name, leaf.output)}
    assert len(names) == 2 * len(state) == 2 * (2 * 4 + 2)


@pytest.mark.parametrize("training", [False, True])
@torch.no_grad()
def test_what_stands_at_padding_changes_nothing_nor_does_more_of_it(training: bool) -> None:
    net, tokens_BT, (source_BS, given_BS) = made().train(training), drawn(4, 5), sources()
    logits = whole(net, tokens_BT, source_BS, given_BS)
    assert logits.shape == (4, 5, V)
    changed = torch.where(given_BS, source_BS, (source_BS + 1) % V)
    assert torch.equal(whole(net, tokens_BT, changed, given_BS), logits)
    longer = whole(net, tokens_BT, F.pad(source_BS, (0, 3)), F.pad(given_BS, (0, 3)))
    torch.testing.assert_close(longer, logits, rtol=1e-5, atol=1e-5)
    for row, length in enumerate(LENGTHS[:3]):
        alone = whole(net, tokens_BT[row : row + 1], source_BS[row : row + 1, :length], None)
        torch.testing.assert_close(alone[0], logits[row], rtol=1e-5, atol=1e-5)


def test_an_empty_source_is_finite_and_gives_the_encoder_no_gradient() -> None:
    net, tokens_BT = made().train(), drawn(2, 5)
    logits = whole(net, tokens_BT, drawn(2, 6), torch.zeros(2, 6, dtype=torch.bool))
    assert torch.isfinite(logits).all()
    logits.square().sum().backward()
    for name, parameter in net.core.encoder.named_parameters():
        assert parameter.grad is None or parameter.grad.abs().max() == 0, name
    for parameter in net.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


@torch.no_grad()
def test_an_answer_sees_the_whole_source_and_only_its_own_past() -> None:
    net, tokens_BT, (source_BS, given_BS) = made(), drawn(2, 6), sources(2)
    before = whole(net, tokens_BT, source_BS, given_BS)
    later = tokens_BT.clone()
    later[0, 3] = (later[0, 3] + 1) % V
    after = whole(net, later, source_BS, given_BS)
    assert torch.equal(before[0, :3], after[0, :3])
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0, 3], after[0, 3])
    source_BS[0, 5] = (source_BS[0, 5] + 1) % V
    assert (whole(net, tokens_BT, source_BS, given_BS)[0] - before[0]).abs().amax(-1).min() > 0


def test_dropout_is_of_training_alone() -> None:
    net, tokens_BT, (source_BS, given_BS) = made(dropout=0.5), drawn(4, 5), sources()
    assert torch.equal(whole(net, tokens_BT, source_BS, given_BS), whole(net, tokens_BT, source_BS, given_BS))
    net.train()
    assert not torch.equal(whole(net, tokens_BT, source_BS, given_BS), whole(net, tokens_BT, source_BS, given_BS))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_low_precision_logits_stay_float32_finite_and_near(dtype: torch.dtype) -> None:
    net, tokens_BT, (source_BS, given_BS) = made(), drawn(4, 5), sources()
    with torch.autocast("cpu", dtype=dtype):
        low = whole(net, tokens_BT, source_BS, given_BS)
    exact = whole(net, tokens_BT, source_BS, given_BS)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.0, atol=0.1 * float(exact.detach().std()))


def test_queries_keys_and_values_are_told_apart() -> None:
    layers = [f"core.encoder.layers.{n}.self_attn" for n in range(2)]
    layers += [f"core.decoder.layers.{n}.{kind}" for n in range(2) for kind in ("self_attn", "multihead_attn")]
    assert made().stacked == {f"{layer}.in_proj_weight": 3 for layer in layers}


def test_a_tied_head_is_the_embedding() -> None:
    assert num_parameters(made()) - num_parameters(made(tied=True)) == V * 16
    assert "head.weight" not in made(tied=True).state_dict()


def test_turning_a_source_round_is_learnt() -> None:
    net, source_BS = seeded(0, lambda: TranslationNetwork(SIGNATURE, SMALL, 8)).train(), drawn(64, 4) % 8
    tokens_BT = torch.cat((torch.full((64, 1), 9), source_BS.flip(1)), 1)
    target_BT = torch.cat((source_BS.flip(1), torch.full((64, 1), 10)), 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    for _ in range(100):
        loss = F.cross_entropy(net(NetInput((tokens_BT, source_BS)))[0].flatten(0, 1), target_BT.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


SMALL = SequenceNetOptions(core="transformer", layers=1, heads=2, width=32)
