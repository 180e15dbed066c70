"""The plain reference: its size, arithmetic and schedule by hand, and what it is scored on."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rlseq.bench import reference
from rlseq.bench.reference import PlainGpt, Recipe, Shape, Text, evaluate, learning_rate, loss_of, read_text, train
from rlseq.seq.config import SeqOptions
from rlseq.seq.tasks.text import TextTask

TINY = Shape(layers=2, heads=2, width=8, context=5, batch_size=4)


def model(vocabulary: int = 7, shape: Shape = TINY) -> PlainGpt:
    torch.manual_seed(3)
    return PlainGpt(vocabulary, shape)


def test_a_text_is_read_as_characters_with_the_last_tenth_apart(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("bé\r\nabc".encode() * 3)
    text = read_text(tmp_path / "a.txt")
    assert text.vocabulary == 6  # \n \r a b c é
    assert text.train.tolist() == [3, 5, 1, 0, 2, 3, 4, 3, 5, 1, 0, 2, 3, 4, 3, 5, 1, 0]
    assert text.validation.tolist() == [2, 3, 4]


def test_many_different_characters_are_read_as_bytes(tmp_path: Path) -> None:
    characters = "".join(map(chr, range(1_000, 1_257)))
    (tmp_path / "a.txt").write_text(characters, encoding="utf-8")
    text = read_text(tmp_path / "a.txt")
    assert text.vocabulary == 256
    assert bytes([*text.train.tolist(), *text.validation.tolist()]) == characters.encode()


def test_the_shape_is_nanogpts_for_a_cpu() -> None:
    assert Shape() == (4, 4, 128, 64, 12)
    assert Recipe() == (1e-3, 1e-4, 100, (0.9, 0.99), 0.1, 1.0)
    assert reference.ITERATIONS == 2_000
    # tokens, positions, four blocks of 12 D^2 and two norms, the last norm; the head is the embedding's
    size = 65 * 128 + 64 * 128 + 4 * (12 * 128**2 + 2 * 128) + 128
    assert sum(p.numel() for p in model(65, Shape()).parameters()) == size == 804_096


def test_the_weights_begin_as_those_of_gpt_2() -> None:
    net = model(65, Shape())
    for name, parameter in net.named_parameters():
        if parameter.ndim == 2:
            wanted = 0.02 / math.sqrt(8) if "attention_out" in name or "down" in name else 0.02
            assert float(parameter.detach().std()) == pytest.approx(wanted, rel=0.05), name
        else:
            assert torch.equal(parameter.detach(), torch.ones(128)), name


def test_the_forward_pass_equals_a_naive_one() -> None:
    net = model().double()
    tokens = torch.tensor([[4, 0, 6, 6, 2]])
    x = (net.tokens.weight[tokens[0]] + net.positions.weight).detach()
    for block in net.blocks:
        y = F.layer_norm(x, (8,), block.norm1.weight)
        q, k, v = (y @ block.qkv.weight[8 * i : 8 * i + 8].T for i in range(3))
        mixed = torch.zeros(5, 8, dtype=torch.float64)
        for head in (slice(0, 4), slice(4, 8)):
            for t in range(5):
                weights = torch.softmax(k[: t + 1, head] @ q[t, head] / 2.0, 0)
                mixed[t, head] = weights @ v[: t + 1, head]
        x = x + mixed @ block.attention_out.weight.T
        x = x + F.gelu(F.layer_norm(x, (8,), block.norm2.weight) @ block.up.weight.T) @ block.down.weight.T
    logits = F.layer_norm(x, (8,), net.norm.weight) @ net.tokens.weight.T
    torch.testing.assert_close(net(tokens)[0], logits, rtol=1e-12, atol=1e-12)


def test_the_learning_rate_rises_and_falls_along_a_cosine() -> None:
    rates = [learning_rate(i, 2_000, Recipe()) for i in (0, 99, 100, 1_050, 2_000)]
    assert rates == pytest.approx([1e-3 / 101, 100e-3 / 101, 1e-3, 5.5e-4, 1e-4])


def test_the_iterations_are_adamws() -> None:
    text, recipe = Text(torch.arange(40) % 7, torch.arange(5), 7), Recipe(lr=0.1, warm_up=1)
    after = dict(train(text, 11, iterations=9, until=3, shape=TINY, recipe=recipe).model.named_parameters())
    torch.manual_seed(11)
    net = PlainGpt(7, TINY)
    mean = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    square = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    for k in range(3):
        starts = torch.randint(40 - 5, (4,)).tolist()
        rows = torch.stack([text.train[i : i + 6] for i in starts])
        gradients = torch.autograd.grad(loss_of(net, rows[:, :-1], rows[:, 1:]), list(net.parameters()))
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        lr = learning_rate(k, 9, recipe)
        for (name, p), gradient in zip(net.named_parameters(), gradients, strict=True):
            g = gradient * min(1.0, 1.0 / (norm + 1e-6))
            mean[name] = 0.9 * mean[name] + 0.1 * g
            square[name] = 0.99 * square[name] + 0.01 * g**2
            step = mean[name] / (1 - 0.9 ** (k + 1)) / ((square[name] / (1 - 0.99 ** (k + 1))).sqrt() + 1e-8)
            p.data = p.data * (1 - lr * (0.1 if p.ndim == 2 else 0.0)) - lr * step
    for name, p in net.named_parameters():
        torch.testing.assert_close(after[name].detach(), p.detach(), rtol=1e-3, atol=1e-4)


def test_it_learns_and_leaves_torchs_generator_alone() -> None:
    text = Text(torch.arange(300) % 7, torch.arange(60) % 7, 7)
    before = torch.get_rng_state()
    first, again = (train(text, 0, iterations=200, shape=TINY, recipe=Recipe(lr=1e-2)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert evaluate(model(), text.validation).loss == pytest.approx(math.log(7), abs=0.02)
    assert evaluate(first.model, text.validation).loss < 0.2
    assert first.seconds > 0.0


@pytest.mark.parametrize("length", [2, 6, 7, 26, 28])
def test_every_target_is_scored_once_in_windows_of_the_context(length: int) -> None:
    net, tokens = model(), torch.from_numpy(np.random.default_rng(0).integers(0, 7, length))
    losses = []
    for place in range(1, length):
        start = (place - 1) // 5 * 5
        logits = net(tokens[None, start:place])[0, -1]
        losses.append(float(F.cross_entropy(logits, tokens[place]).detach()))
    score = evaluate(net, tokens, rows=2)
    assert score.tokens == length - 1
    assert score.loss == pytest.approx(sum(losses) / len(losses), rel=1e-6)


def test_it_is_scored_on_the_windows_that_ours_is(book: Path) -> None:
    text, task = read_text(book), TextTask(SeqOptions(data=str(book), context=64, validation=0.1))
    theirs = list(reference.windows(text.validation, 64, 1))
    ours = list(task.validation(1))
    assert len(ours) == len(theirs) == 2
    assert text.vocabulary == task.signature.vocabulary
    for batch, (inputs, targets) in zip(ours, theirs, strict=True):
        kept = slice(None) if batch.mask is None else batch.mask
        np.testing.assert_array_equal(batch.inputs[kept].ravel(), inputs.numpy().ravel())
        np.testing.assert_array_equal(batch.targets[kept].ravel(), targets.numpy().ravel())
