"""Networks: encoder -> core -> head, one contract for training, acting and export.

`forward(inputs, state) -> (outputs, state)` is pure: a module holds parameters, never the memory of an episode. What is
trained is what is exported; there are no twin classes.

Shapes: B batch, F features of the encoded observation, A actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlseq.nets.config import NetOptions
from rlseq.nets.encoder import ObservationEncoder
from rlseq.spec import Leaf, StateLeaf

State = tuple[Tensor, ...]


class NetInput(NamedTuple):
    """What a network may use; what it does not use is None.

    Attributes:
        x: the observation's leaves `[B, *shape]`, or tokens `[B, T]`.
        mask: `[B, T]` bool, false on padding.
        first: `[B]` bool, true where an episode starts.
        memory: what an encoder made, for a decoder to attend to.
    """

    x: tuple[Tensor, ...]
    mask: Tensor | None = None
    first: Tensor | None = None
    memory: Tensor | None = None


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
}


class MlpCore(nn.Module):
    """Linear layers with an activation after each; no state."""

    def __init__(self, num_features: int, options: NetOptions) -> None:
        super().__init__()
        widths = [num_features, *options.hidden]
        layers: list[nn.Module] = []
        for width_in, width_out in itertools.pairwise(widths):
            layers += [nn.Linear(width_in, width_out), ACTIVATIONS[options.activation]()]
        self.layers = nn.Sequential(*layers)
        self.num_features = widths[-1]
        self.state_leaves: tuple[StateLeaf, ...] = ()

    def forward(self, x_BF: Tensor, inputs: NetInput, state: State) -> tuple[Tensor, State]:
        return self.layers(x_BF), state


# name -> core class: (features, options) -> module with `num_features`, `state_leaves` and the forward of MlpCore
CORES: dict[str, Callable[[int, NetOptions], MlpCore]] = {"mlp": MlpCore}


class QNetwork(nn.Module):
    """Action values of a discrete-action policy.

    Args:
        leaves: of the observation.
        num_actions: A.
        options: kind and widths of the core.
    """

    def __init__(self, leaves: Sequence[Leaf], num_actions: int, options: NetOptions) -> None:
        super().__init__()
        self.encoder = ObservationEncoder(leaves)
        self.core = CORES[options.core](self.encoder.num_features, options)
        self.head = nn.Linear(self.core.num_features, num_actions)

    @property
    def state_leaves(self) -> tuple[StateLeaf, ...]:
        """The recurrent arrays, none for a feed-forward core."""
        return self.core.state_leaves

    def forward(self, inputs: NetInput, state: State = ()) -> tuple[Tensor, State]:
        """Action values `[B, A]`, float32 (float64 in exact tests), and the next state."""
        h_BF, state = self.core(self.encoder(inputs.x), inputs, state)
        q_BA = self.head(h_BF)
        return q_BA if q_BA.dtype == torch.float64 else q_BA.float(), state


def num_parameters(net: nn.Module) -> int:
    """Number of trained numbers."""
    return sum(parameter.numel() for parameter in net.parameters())


def seeded(seed: int, build: Callable[[], nn.Module]) -> nn.Module:
    """Build a module with weights drawn from `seed`, leaving torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
