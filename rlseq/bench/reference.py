"""The plain reference for sequence models: a small GPT and its training loop, with nothing that rlseq is proud of.

The network is GPT-2's (pre-norm, arXiv 1706.03762 otherwise) in the CPU configuration of nanoGPT's README: 4 layers, 4
heads, 128 wide, learned positions, one product for queries, keys and values, GELU, LayerNorm, no biases, the head tied
to the embedding; AdamW with torch's defaults for a CPU, a rate that rises over 100 iterations and falls along a cosine.
It shares no code with `rlseq.nets` or `rlseq.engine`: what is compared must not lean on what it is compared with.

Shapes: B sequences, T tokens, D width, H heads, V vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOST_CHARACTERS = 256  # a text with more different ones is read as bytes, as `rlseq train seq` does


class Shape(NamedTuple):
    """Layers, heads, width of the network, length of a window, windows of an update."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 64
    batch_size: int = 12


class Recipe(NamedTuple):
    """AdamW and the course of its learning rate, in iterations."""

    lr: float = 1e-3
    final_lr: float = 1e-4
    warm_up: int = 100
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    clip_norm: float = 1.0


ITERATIONS = 2_000


class Text(NamedTuple):
    """A text as tokens: its first 90 % `[N]` int64, the rest, and the number of different tokens."""

    train: Tensor
    validation: Tensor
    vocabulary: int


class Trained(NamedTuple):
    """A trained network, and the wall time of building it and of its iterations."""

    model: PlainGpt
    seconds: float


def read_text(path: Path) -> Text:
    """A text file, a token a character, or a byte if there are more than 256 different characters."""
    text = path.read_bytes().decode()  # line ends as they are
    characters = sorted(set(text))
    if len(characters) > MOST_CHARACTERS:
        tokens, vocabulary = np.frombuffer(text.encode(), np.uint8), 256
    else:
        numbers = {character: number for number, character in enumerate(characters)}
        tokens, vocabulary = np.fromiter((numbers[c] for c in text), np.uint8, len(text)), len(characters)
    everything = torch.from_numpy(tokens.astype(np.int64))
    cut = int(0.9 * len(everything))
    return Text(everything[:cut], everything[cut:], vocabulary)


class Block(nn.Module):
    """Attention and feed-forward, each on the normalised stream and added to it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = shape.width
        self.heads = shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.attention_out = nn.Linear(d, d, bias=False)
        self.up = nn.Linear(d, 4 * d, bias=False)
        self.down = nn.Linear(4 * d, d, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        B, T, D = x_BTD.shape
        q, k, v = (
            part.view(B, T, self.heads, D // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x_BTD)).split(D, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTD = x_BTD + self.attention_out(mixed.transpose(1, 2).reshape(B, T, D))
        return x_BTD + self.down(F.gelu(self.up(self.norm2(x_BTD))))


class PlainGpt(nn.Module):
    """Embedding and positions, blocks, norm, head."""

    def __init__(self, vocabulary: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                into_stream = name.endswith(("attention_out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * shape.layers) if into_stream else 0.02)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits `[B, T, V]`; T is at most the context."""
        x_BTD = self.tokens(tokens_BT) + self.positions(torch.arange(tokens_BT.shape[1]))
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return F.linear(self.norm(x_BTD), self.tokens.weight)


def learning_rate(iteration: int, iterations: int, recipe: Recipe) -> float:
    """The rate of an iteration, counted from 0."""
    if iteration < recipe.warm_up:
        return recipe.lr * (iteration + 1) / (recipe.warm_up + 1)
    done = (iteration - recipe.warm_up) / max(1, iterations - recipe.warm_up)
    return recipe.final_lr + 0.5 * (1 + math.cos(math.pi * done)) * (recipe.lr - recipe.final_lr)


def loss_of(model: PlainGpt, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """Mean cross-entropy in nats."""
    return F.cross_entropy(model(inputs_BT).flatten(0, 1), targets_BT.flatten())


def train(
    text: Text,
    seed: int,
    *,
    iterations: int = ITERATIONS,
    until: int | None = None,
    shape: Shape = Shape(),  # noqa: B008 - a named tuple of numbers
    recipe: Recipe = Recipe(),  # noqa: B008
) -> Trained:
    """Train on random windows of the text.

    Args:
        text: from `read_text`.
        seed: of weights and windows; torch's generator is left as it was.
        iterations: over which the learning rate runs.
        until: stop after this many; None: after all.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        started = time.perf_counter()
        model = PlainGpt(text.vocabulary, shape)
        matrices = [p for p in model.parameters() if p.ndim >= 2]
        vectors = [p for p in model.parameters() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas)
        for iteration in range(iterations if until is None else until):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(iteration, iterations, recipe)
            starts = torch.randint(len(text.train) - shape.context, (shape.batch_size,)).tolist()
            inputs_BT = torch.stack([text.train[i : i + shape.context] for i in starts])
            targets_BT = torch.stack([text.train[i + 1 : i + 1 + shape.context] for i in starts])
            loss = loss_of(model, inputs_BT, targets_BT)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return Trained(model, time.perf_counter() - started)


class Score(NamedTuple):
    """Mean loss in nats, and over how many targets."""

    loss: float
    tokens: int


def windows(validation: Tensor, context: int, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets `[rows, context]` that follow each other through a text; the last window may be shorter."""
    whole = (len(validation) - 1) // context * context
    inputs, targets = validation[:-1], validation[1:]
    for start in range(0, whole, rows * context):
        span = slice(start, min(start + rows * context, whole))
        yield inputs[span].view(-1, context), targets[span].view(-1, context)
    if whole < len(inputs):
        yield inputs[whole:][None], targets[whole:][None]


def evaluate(model: PlainGpt, validation: Tensor, rows: int = 256) -> Score:
    """The loss over every target of the validation split once, in windows of the context.

    Args:
        model: trained.
        validation: `[N]` int64.
        rows: windows at once.
    """
    num_targets = len(validation) - 1
    with torch.no_grad():
        total = sum(
            float(loss_of(model, x_BT, y_BT)) * y_BT.numel()
            for x_BT, y_BT in windows(validation, model.shape.context, rows)
        )
    return Score(total / num_targets, num_targets)
