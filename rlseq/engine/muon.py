"""Muon: momentum, made orthogonal, for the matrices of hidden layers.

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/), with the update scaled to the size of Adam's as in
Liu et al. 2025 (arXiv 2502.16982), so that both take the same learning rates. What differs: matrices of one shape go
through the Newton-Schulz iteration together, in float32 where the machine does not multiply bfloat16. In bfloat16 the
numbers are those of `torch.optim.Muon` bit for bit.

Shapes: H elements of all hidden matrices, N matrices of R rows and C columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlseq.engine.device import cpu_has_bf16

# Of the quintic a x + b x^3 + c x^5, which takes singular values of (0, 1] near 1 soonest (Jordan et al. 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
SMALLEST_NORM = 1e-7
ADAM_SIZE = 0.2  # root mean square of an update of Adam (arXiv 2502.16982, section 2.2)


def product_dtype(device: torch.device) -> torch.dtype:
    """The dtype of the iteration's products: bfloat16 where the hardware multiplies it, else float32.

    It depends on the machine alone, not on a measurement, so that a resumed training goes on exactly.
    """
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    return torch.bfloat16 if cpu_has_bf16() else torch.float32


def orthogonal(matrices_NRC: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest matrices with orthonormal rows (or columns, if those are fewer), roughly: `[N, R, C]` of `dtype`.

    Singular values come out between about 0.7 and 1.2.
    """
    a, b, c = COEFFICIENTS
    x = matrices_NRC.to(dtype)
    tall = x.size(-2) > x.size(-1)
    if tall:  # the Gram matrix is that of the shorter side
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon:
    """Muon over matrices that lie one after the other in a flat buffer.

    Args:
        weights: `[H]`.
        gradient: `[H]`.
        shapes: of the matrices, in their order.
        settings: `lr`, `momentum`, `weight_decay`.

    Attributes:
        param_groups: as torch's; one group, one parameter.
        momentum: `[H]`, None before the first step.
    """

    def __init__(
        self, weights: Tensor, gradient: Tensor, shapes: Sequence[tuple[int, int]], settings: dict[str, float]
    ) -> None:
        parameter = nn.Parameter(weights)
        parameter.grad = gradient
        self.param_groups: list[dict[str, Any]] = [{"params": [parameter], **settings}]
        self.momentum: Tensor | None = None
        self._weights, self._gradient = weights, gradient
        self._update = torch.empty_like(weights)
        self._dtype = product_dtype(weights.device)
        self._stacks: dict[tuple[int, int], list[slice]] = {}
        offset = 0
        for rows, columns in shapes:
            self._stacks.setdefault((rows, columns), []).append(slice(offset, offset + rows * columns))
            offset += rows * columns

    def step(self, lr: float | Tensor) -> None:
        """Change the weights by the gradient at this learning rate; weight decay is decoupled.

        Args:
            lr: a number, or a scalar on the weights' device.
        """
        group = self.param_groups[0]
        group["lr"], decay = lr, group["momentum"]
        if self.momentum is None:
            self.momentum = torch.zeros_like(self._weights)
        self.momentum.lerp_(self._gradient, 1 - decay)
        torch.lerp(self._gradient, self.momentum, decay, out=self._update)  # Nesterov's
        self._weights.mul_(1 - lr * group["weight_decay"])
        for (rows, columns), spans in self._stacks.items():
            stack_NRC = torch.stack([self._update[span].view(rows, columns) for span in spans])
            updates_NRC = orthogonal(stack_NRC, self._dtype).to(self._weights.dtype)
            size = ADAM_SIZE * max(rows, columns) ** 0.5
            weights = [self._weights[span].view(rows, columns) for span in spans]
            if isinstance(lr, Tensor):  # as a factor of the sum it would have to be read from the device
                torch._foreach_add_(weights, list((updates_NRC * (-lr * size)).unbind(0)))
            else:
                torch._foreach_add_(weights, list(updates_NRC.unbind(0)), alpha=-lr * size)
