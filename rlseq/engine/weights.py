"""A module's weights as arrays by name: what a checkpoint holds, without any prefix of compilers or wrappers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from rlseq.errors import CorruptFile


def state_arrays(net: nn.Module) -> dict[str, np.ndarray]:
    """A module's parameters and buffers by name."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in net.state_dict().items()}


def load_arrays(net: nn.Module, arrays: Mapping[str, np.ndarray], where: str) -> None:
    """Load `state_arrays` back into a module of the same shape, in place.

    Raises:
        CorruptFile: names or shapes are those of another network.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    given = {name: array.shape for name, array in arrays.items()}
    if expected != given:
        odd = sorted(name for name in expected.keys() | given.keys() if expected.get(name) != given.get(name))
        name = odd[0]
        raise CorruptFile(
            f"{where} holds weights of another network: {name} is {given.get(name, 'missing')}, this network has "
            f"{expected.get(name, 'no such weight')}. It was made for another environment or other data, or with other "
            "net.* options."
        )
    net.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
