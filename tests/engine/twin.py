"""A recorder for tests on a CPU that is as strict as a CUDA graph.

It writes down every operation with the very tensors and numbers of its call, undoes what they changed, and replays them
on the same memory. So a number from the host stays as it was, a tensor that was put elsewhere is written in vain, and
reading a value is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlseq.engine.recording import Recording, Tensors, Work

HOST = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default}


class _Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], None]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # by storage: what was written to, as it was
        self.kept: list[Any] = []  # so that no memory is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in HOST:
            raise RuntimeError("operation not permitted when stream is capturing")
        for schema, value in self._arguments(func, args, kwargs):
            if schema.alias_info is not None and schema.alias_info.is_write:
                for tensor in tree_leaves(value):
                    self._remember(tensor)
        out = func(*args, **kwargs)
        fresh = [r.alias_info is None for r in func._schema.returns]
        outs = out if isinstance(out, tuple) else (out,)
        mine = [o for o, new in zip(outs, fresh, strict=False) if new]
        self.kept += [args, kwargs, out]
        self.steps.append(lambda: _again(func, args, kwargs, mine, fresh))
        return out

    @staticmethod
    def _arguments(func: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
        schema = func._schema.arguments
        return [(s, args[k] if k < len(args) else kwargs.get(s.name)) for k, s in enumerate(schema)]

    def _remember(self, tensor: Any) -> None:
        if isinstance(tensor, Tensor):
            key = tensor.untyped_storage().data_ptr()
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            self.before.setdefault(key, (whole, whole.clone()))


def _again(func: Any, args: Any, kwargs: Any, mine: list[Any], fresh: list[bool]) -> None:
    out = func(*args, **kwargs)
    outs = out if isinstance(out, tuple) else (out,)
    new = [o for o, is_new in zip(outs, fresh, strict=False) if is_new]
    for place, value in zip(tree_leaves(mine), tree_leaves(new), strict=True):
        if isinstance(place, Tensor):
            place.copy_(value)


class Twin:
    """See the module; a `rlseq.engine.recording.Recorder`. Counts its warm-ups, recordings and replays."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.warm_ups = self.records = self.replays = 0

    def warm_up(self, work: Work) -> Tensors:
        self.warm_ups += 1
        return work()

    def record(self, work: Work) -> Recording:
        self.records += 1
        with torch.random.fork_rng(devices=[]), _Tape() as tape:  # a recording draws no random numbers
            outputs = work()
        for whole, before in tape.before.values():
            whole.copy_(before)
        for output in outputs:
            output.fill_(float("nan"))

        @torch.no_grad()
        def replay() -> None:
            self.replays += 1
            with torch._C._AutoDispatchBelowAutograd():
                for step in tape.steps:
                    step()

        return Recording(replay, outputs)
