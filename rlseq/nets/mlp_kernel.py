"""Forward and backward of a plain MLP in closed form, into buffers that are allocated once.

For small networks on a CPU autograd's bookkeeping takes longer than the arithmetic. The calls below are those that
autograd makes, in its order, on the same shapes; so values and gradients are the same bit for bit, and a training may
change from one to the other at any checkpoint.

Shapes: B batch, F features of the encoded observation, H hidden units, A actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlseq.nets.network import MlpCore, QNetwork

ALIGNMENT = 64  # bytes, of torch's own allocations


class _Activation(NamedTuple):
    """In place forward, and `(grad, output)` -> grad, in place, of the layer's input."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]


def _relu_backward(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward.grad_input(grad, output, 0, grad_input=grad)


def _tanh_backward(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward.grad_input(grad, output, grad_input=grad)


# Those whose derivative follows from their output; the others need autograd.
ACTIVATIONS: dict[type[nn.Module], _Activation] = {
    nn.ReLU: _Activation(torch.relu_, _relu_backward),
    nn.Tanh: _Activation(torch.tanh_, _tanh_backward),
}


class _Layer(NamedTuple):
    """A linear layer's numbers as they lie in the flat buffers, transposed views, and its buffers.

    Attributes:
        product: where the weight's gradient is computed.
        activation: None for the head.
        output: `[B, H]`.
        grad: `[B, H]`, of the loss with respect to the layer's output.
    """

    weight: Tensor
    weight_t: Tensor
    bias: Tensor
    weight_grad: Tensor
    bias_grad: Tensor
    product: Tensor
    activation: _Activation | None
    output: Tensor
    grad: Tensor
    grad_t: Tensor


def fits(net: nn.Module) -> bool:
    """Whether the closed form applies: a Q-network of linear layers with ReLU or tanh, float32 (float64 in exact
    tests), on the CPU."""
    return (
        type(net) is QNetwork
        and type(net.core) is MlpCore
        and all(type(layer) is nn.Linear or type(layer) in ACTIVATIONS for layer in net.core.layers)
        and all(p.device.type == "cpu" and p.dtype == torch.get_default_dtype() for p in net.parameters())
    )


class MlpKernel:
    """The closed form for one network and one number of rows.

    Args:
        net: one that `fits`. Its parameters must stay where they lie: lay them out flat before.
        num_rows: B.
        with_grad: whether `backward` will be called; the parameters must have their gradients' buffers.

    Attributes:
        q: `[B, A]`, overwritten by every `forward`.
        q_grad: `[B, A]`, of the loss with respect to `q`: to be filled before `backward`.
    """

    def __init__(self, net: QNetwork, num_rows: int, *, with_grad: bool) -> None:
        modules = [*net.core.layers, net.head]
        self._encoder = None if net.encoder.is_identity else net.encoder
        self._layers = [
            _layer(module, following, num_rows, with_grad)
            for module, following in itertools.pairwise([*modules, None])
            if type(module) is nn.Linear
        ]
        self.q, self.q_grad = self._layers[-1].output, self._layers[-1].grad

    def forward(self, obs: tuple[Tensor, ...]) -> Tensor:
        """Action values `[B, A]` of leaves `[B, ...]`."""
        self._x = x_BF = obs[0] if self._encoder is None else self._encoder(obs)
        for layer in self._layers:
            x_BF = torch.addmm(layer.bias, x_BF, layer.weight_t, out=layer.output)
            if layer.activation is not None:
                layer.activation.forward(x_BF)
        return x_BF

    def backward(self) -> None:
        """Overwrite the parameters' gradients by those of the last `forward`, from `q_grad`."""
        layers = self._layers
        for k in range(len(layers) - 1, -1, -1):
            layer = layers[k]
            torch.mm(layer.grad_t, layers[k - 1].output if k else self._x, out=layer.product)
            if layer.product is not layer.weight_grad:
                layer.weight_grad.copy_(layer.product)
            torch.sum(layer.grad, 0, out=layer.bias_grad)
            if k:
                below = layers[k - 1]
                torch.mm(layer.grad, layer.weight, out=below.grad)
                assert below.activation is not None
                below.activation.backward(below.grad, below.output)


def _layer(linear: nn.Linear, following: nn.Module | None, num_rows: int, with_grad: bool) -> _Layer:
    weight, bias = linear.weight.detach(), linear.bias.detach()
    output = torch.empty(num_rows, linear.out_features)
    grad, weight_grad, bias_grad = output, weight, bias  # never used
    if with_grad:
        assert linear.weight.grad is not None and linear.bias.grad is not None, "lay the parameters out flat first"
        grad, weight_grad, bias_grad = torch.empty_like(output), linear.weight.grad, linear.bias.grad
    # A matrix product into memory that is not aligned is rounded otherwise (MKL), and autograd's always is aligned.
    aligned = weight_grad.data_ptr() % ALIGNMENT == 0
    return _Layer(
        weight,
        weight.t(),
        bias,
        weight_grad,
        bias_grad,
        weight_grad if aligned else torch.empty_like(weight_grad),
        None if following is None else ACTIVATIONS.get(type(following)),
        output,
        grad,
        grad.t(),
    )
