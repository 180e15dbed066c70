"""What every sequence network keeps: causal, and the same whether it reads a sequence whole, in chunks or by tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.network import NetInput, num_parameters, seeded
from rlseq.nets.sequence import SequenceNetwork
from rlseq.sequence import Signature
from tests.sequences import enlarged

VOCABULARY, CONTEXT = 11, 8
EVERY: dict[str, dict[str, Any]] = {
    "gpt": {},
    "gpt, window 3, tied": {"window": 3, "tied": True},
    "gpt, window 1, swiglu": {"window": 1, "activation": "swiglu"},
    "gpt, plain queries, gelu": {"qk_norm": False, "activation": "gelu"},
    "gpt, one layer, relu": {"layers": 1, "activation": "relu"},
    "lstm": {"core": "lstm"},
    "lstm, tied, one layer": {"core": "lstm", "tied": True, "layers": 1},
    "gru": {"core": "gru"},
}
every_network = pytest.mark.parametrize("options", EVERY.values(), ids=EVERY.keys())


def made(options: dict[str, Any], *, seed: int = 0, scale: float = 1.0) -> SequenceNetwork:
    """A small network in evaluation; `scale` enlarges its matrices, so that tokens far apart matter to each other."""
    heads = {"heads": 2} if options.get("core", "gpt") == "gpt" else {}
    chosen = SequenceNetOptions(**{"layers": 2, "width": 16, **heads, **options})
    net = seeded(seed, lambda: SequenceNetwork(Signature(vocabulary=VOCABULARY), chosen, CONTEXT)).eval()
    assert isinstance(net, SequenceNetwork)
    return enlarged(net, scale)


def tokens(batch: int, time: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(VOCABULARY, size=(batch, time)))


@torch.no_grad()
def in_chunks(net: SequenceNetwork, tokens_BT: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    state, parts = net.initial_state(len(tokens_BT)), []
    for chunk in tokens_BT.split(sizes, 1):
        logits_BTV, state = net(NetInput((chunk,)), state)
        parts.append(logits_BTV)
    return torch.cat(parts, 1)


@every_network
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("sizes", [[1] * 30, [30], [17, *[1] * 13], [3, 7, 8, 9, 1, 2], [7, 1, 1, 8, 13]], ids=str)
def test_whole_sequences_chunks_and_single_tokens_give_the_same_also_past_the_window(
    options: dict[str, Any], batch: int, sizes: list[int]
) -> None:
    scale = 2.0 if "core" in options else 8.0  # a recurrent network would be chaotic
    net, tokens_BT = made(options, scale=scale), tokens(batch, 30)
    with torch.no_grad():
        whole_BTV, state = net(NetInput((tokens_BT,)))
    assert state == ()
    assert whole_BTV.shape == (batch, 30, VOCABULARY)
    assert whole_BTV.std() > 0.1
    torch.testing.assert_close(in_chunks(net, tokens_BT, sizes), whole_BTV, rtol=1e-4, atol=1e-4)


@every_network
def test_no_logit_depends_on_a_later_token_nor_on_another_row(options: dict[str, Any]) -> None:
    net = made(options, scale=8.0)
    with torch.no_grad():
        before_BTV = net(NetInput((tokens(2, 12),)))[0]
        changed_BT = tokens(2, 12)
        changed_BT[0, 7] = (changed_BT[0, 7] + 1) % VOCABULARY
        after_BTV = net(NetInput((changed_BT,)))[0]
    assert torch.equal(before_BTV[0, :7], after_BTV[0, :7])
    assert torch.equal(before_BTV[1], after_BTV[1])
    assert not torch.equal(before_BTV[0, 7], after_BTV[0, 7])


@every_network
def test_the_gradient_of_a_logit_reaches_back_as_far_as_it_may(options: dict[str, Any]) -> None:
    net = made(options, scale=8.0)
    seen: list[torch.Tensor] = []
    net.embedding.register_forward_hook(lambda module, given, x_BTD: (x_BTD.retain_grad(), seen.append(x_BTD))[0])
    net(NetInput((tokens(1, 12),)))[0][0, 9].square().sum().backward()
    grad = seen[0].grad
    assert grad is not None
    reached = grad[0].abs().sum(-1).nonzero().flatten().tolist()
    layers = options.get("layers", 2)
    reach = 1 + layers * (min(options.get("window", CONTEXT), CONTEXT) - 1)  # each layer looks as far again
    first = 0 if net.window is None else max(0, 10 - reach)
    assert reached == list(range(first, 10))


@every_network
def test_evaluating_twice_gives_the_same_with_dropout(options: dict[str, Any]) -> None:
    net, given = made({**options, "dropout": 0.5}), NetInput((tokens(2, 8),))
    assert torch.equal(net(given)[0], net(given)[0])
    net.train()
    assert not torch.equal(net(given)[0], net(given)[0])


@every_network
def test_weights_depend_on_the_seed_alone(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    a = made(options, seed=7).state_dict()
    torch.manual_seed(2)
    b, c = made(options, seed=7).state_dict(), made(options, seed=8).state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["embedding.weight"], c["embedding.weight"])


@every_network
def test_the_state_is_what_its_leaves_say(options: dict[str, Any]) -> None:
    net = made(options)
    state = net.initial_state(3)
    for taken, kept in [(0, 0), (2, 2), (5, 7), (40, 7)]:
        if taken:
            _, state = net(NetInput((tokens(3, taken),)), state)
        sizes = {"batch": 3, "past": min(kept, (net.window or CONTEXT) - 1)}
        assert len(state) == len(net.state_leaves)
        for leaf, tensor in zip(net.state_leaves, state, strict=True):
            assert tuple(tensor.shape) == tuple(sizes[n] if isinstance(n, str) else n for n in leaf.shape)
            assert str(tensor.dtype) == f"torch.{leaf.dtype}"
    assert len({name for leaf in net.state_leaves for name in (leaf.name, leaf.output)}) == 2 * len(state)


@pytest.mark.parametrize("core", ["gpt", "lstm", "gru"])
def test_a_tied_head_is_the_embedding(core: str) -> None:
    tied, own = made({"core": core, "tied": True}), made({"core": core})
    assert num_parameters(own) - num_parameters(tied) == VOCABULARY * 16
    assert sorted(set(own.state_dict()) - set(tied.state_dict())) == ["head.weight"]
    hidden: list[torch.Tensor] = []
    tied.norm.register_forward_hook(lambda module, given, x_BTD: hidden.append(x_BTD))
    logits_BTV = tied(NetInput((tokens(2, 5),)))[0]
    assert torch.equal(logits_BTV, hidden[0] @ tied.embedding.weight.T)


@every_network
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_low_precision_logits_stay_float32_and_near(options: dict[str, Any], dtype: torch.dtype) -> None:
    net, given = made(options), tokens(2, 12)
    with torch.autocast("cpu", dtype=dtype):
        low_BTV = net(NetInput((given,)))[0]
    logits_BTV = net(NetInput((given,)))[0]
    assert low_BTV.dtype == logits_BTV.dtype == torch.float32
    assert not torch.equal(low_BTV, logits_BTV)
    torch.testing.assert_close(low_BTV, logits_BTV, rtol=0.0, atol=0.1 * float(logits_BTV.detach().std()))


@pytest.mark.parametrize("core", ["gpt", "lstm", "gru"])
def test_what_follows_from_the_last_token_is_learnt(core: str) -> None:
    net, given = made({"core": core}).train(), tokens(8, 12)
    target_BT = (given + 3) % VOCABULARY
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        loss = F.cross_entropy(net(NetInput((given,)))[0].flatten(0, 1), target_BT.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
