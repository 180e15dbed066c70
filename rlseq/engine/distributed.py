"""The processes of one training, by torch.distributed: who there is, and what they tell each other.

Every process runs the same code at the same steps; process 0, the first, alone writes files and speaks. Numbers for
decisions go over a group of their own (gloo, tensors on the CPU), so that a decision never waits for a GPU; gradients
go over the group that suits the device. What goes over the wire is numbers and JSON, never code.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rlseq.engine.config import EngineOptions
from rlseq.engine.meeting import Tell, meet, reason_of
from rlseq.errors import Elsewhere, PeerLost, RlseqError, UsageError
from rlseq.ranks import Place, place_here

T = TypeVar("T")
ONE = Place()


class World:
    """The processes of one training.

    Args:
        place: of this process.
        group: for decisions; None: there is no other process.

    Attributes:
        rank: number of this process, from 0.
        size: how many there are.
        local_rank, local_size: the same among those of this machine.
        first: whether this is process 0, which alone writes.
        alone: whether there is no other process.
    """

    def __init__(self, place: Place = ONE, group: Any = None) -> None:
        self.rank, self.size, self.local_rank, self.local_size = place
        self.first, self.alone = place.rank == 0, place.size == 1
        self._control = self._gradients = group
        self._shared: list[Any] = []

    def connect(self, options: EngineOptions, device: torch.device) -> None:
        """Make the groups of a training whose options are known: how long to wait, and what gradients go over.

        Raises:
            UsageError: nccl without CUDA.
        """
        if options.backend == "nccl" and device.type != "cuda":
            raise UsageError(
                f"engine.backend = nccl needs CUDA devices, and this training runs on {device.type}. Set "
                "engine.backend=auto or gloo, or give --device cuda on a machine that has GPUs."
            )
        if self.alone:
            return
        wait = timedelta(seconds=options.wait_seconds)
        self._control = dist.new_group(backend="gloo", timeout=wait)
        nccl = device.type == "cuda" and options.backend != "gloo"
        self._gradients = dist.new_group(backend="nccl", timeout=wait) if nccl else self._control

    def leave(self) -> None:
        """Let go of the groups.

        Their threads must end before Python does, which aborts otherwise (4 times in 10 with torch 2.13); and a
        traceback, or a cycle of objects, may hold this one and the networks until then.
        """
        self._control = self._gradients = None
        for shared in self._shared:
            shared.reducer = shared.logger = shared.process_group = None

    def describe(self) -> dict[str, str]:
        """What to say of the processes before a training begins, as label -> text."""
        if self.alone:
            return {}
        backend = dist.get_backend(self._gradients)
        machines = "" if self.size == self.local_size else f", {self.local_size} of them here"
        return {"processes": f"{self.size}{machines}, gradients over {backend}"}

    def rows(self, count: int) -> slice:
        """This process' share of `count` rows: consecutive ones, all shares together every row once."""
        return slice(*(round(k * count / self.size) for k in (self.rank, self.rank + 1)))

    def parallel(self, net: torch.nn.Module) -> torch.nn.parallel.DistributedDataParallel:
        """The network such that a backward pass averages its gradients over the processes (Li et al. 2020,
        arXiv 2006.15704), in the buffers that its parameters have."""
        wrapper = torch.nn.parallel.DistributedDataParallel
        new = "forward_sync_buffers" in inspect.signature(wrapper).parameters  # its older name was deprecated
        no_buffers: Any = {"forward_sync_buffers" if new else "broadcast_buffers": False}  # they are constants
        shared = wrapper(net, process_group=self._gradients, gradient_as_bucket_view=False, **no_buffers)
        self._shared.append(shared)
        return shared

    def add_shares(self, tensor: Tensor, share: float) -> None:
        """In place: the sum of `share * tensor` over the processes; the same bits everywhere."""
        if not self.alone:
            dist.all_reduce(tensor.mul_(share), group=self._gradients)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over the processes, in float64."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def largest(self, values: Sequence[float]) -> list[float]:
        """The largest of the processes' values."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def _reduced(self, values: Sequence[float], how: Any) -> list[float]:
        if self.alone or not values:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=how, group=self._control)
        return tensor.tolist()

    def gather(self, value: Any) -> list[Any]:
        """JSON data of every process, in their order."""
        if self.alone:
            return [value]
        own = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = [int(n) for n in self._columns(len(own))]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(own)] = own
        parts = [torch.empty(len(padded), dtype=torch.uint8) for _ in lengths]
        dist.all_gather(parts, torch.from_numpy(padded), group=self._control)
        return [json.loads(part[:length].numpy().tobytes()) for part, length in zip(parts, lengths, strict=True)]

    def _columns(self, value: float) -> list[float]:
        """The value of every process."""
        return self.sum([value if k == self.rank else 0.0 for k in range(self.size)])

    def from_first(self, value: Any) -> Any:
        """JSON data of process 0."""
        return self.gather(value if self.first else None)[0]

    def gather_arrays(self, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """Arrays of processes 1, 2, ... by their names, at process 0; nothing elsewhere. One process after the other
        sends, so process 0 needs memory for all of it, and nobody for copies."""
        if self.alone:
            return []
        layouts = self.gather({name: [array.dtype.str, array.shape] for name, array in arrays.items()})
        if not self.first:
            for array in arrays.values():
                if array.size:
                    dist.send(torch.from_numpy(_as_bytes(np.ascontiguousarray(array))), 0, group=self._control)
            return []
        received: list[dict[str, np.ndarray]] = []
        for rank, layout in enumerate(layouts[1:], 1):
            received.append({name: np.empty(shape, dtype) for name, (dtype, shape) in layout.items()})
            for array in received[-1].values():
                if array.size:
                    dist.recv(torch.from_numpy(_as_bytes(array)), rank, group=self._control)
        return received

    def together(self, action: Callable[[], T]) -> T:
        """Do something in which no process waits for another; if it fails in one, it fails in all, with one message.

        Raises:
            RlseqError: what went wrong here; or in process 0: in another one, with its number.
            Elsewhere: in the others: what went wrong in another one.
        """
        if self.alone:
            return action()
        error: Exception | None = None
        try:
            result = action()
        except Exception as caught:
            error = caught
        reports = self.gather(None if error is None else [str(error), getattr(error, "exit_code", 1)])
        failed = [rank for rank, report in enumerate(reports) if report is not None]
        if not failed:
            return result
        rank = failed[0]
        message, code = reports[rank]
        if rank == self.rank and self.first:
            assert error is not None
            raise error
        if error is not None and not isinstance(error, RlseqError):
            raise error  # a bug: with its traceback, wherever it is
        kind = Elsewhere if not self.first else UsageError if code == UsageError.exit_code else RlseqError
        other = kind(message if rank == 0 else f"process {rank}: {message}")
        other.exit_code = code
        raise other from error

    def check_same(self, what: str, tensor: Tensor) -> None:
        """See that a tensor has the same bits everywhere, but for one case in billions.

        Raises:
            RlseqError: it has not, which no error of a user's can bring about.
        """
        if self.alone:
            return
        values = self._columns(float(zlib.crc32(tensor.detach().cpu().numpy().tobytes())))
        if len(set(values)) > 1:
            raise RlseqError(f"the processes no longer agree about {what}: {values}. Go on from the last checkpoint.")


ALONE = World()


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


@contextlib.contextmanager
def joined(tell: Tell = lambda message: None) -> Iterator[World]:
    """The processes that the environment variables of torchrun describe (RANK, WORLD_SIZE ...), or a group that was
    made before; without either this process is alone.

    Args:
        tell: takes what is worth a message while the others are waited for.

    Raises:
        UsageError: some variables are missing or no numbers.
        RlseqError: the others could not be reached.
        PeerLost: while in use: a process ended without the others.
    """
    place = place_here()
    if dist.is_available() and dist.is_initialized():
        with watching():
            yield World(_place_in_group(place), dist.new_group(backend="gloo"))
        return
    if place is None or place.size == 1:
        yield World(place or ONE)
        return
    meet(place, tell)
    world = World(place, dist.group.WORLD)
    try:
        with watching():
            yield world
    finally:
        world.leave()
        dist.destroy_process_group()


def _place_in_group(place: Place | None) -> Place:
    rank, size = dist.get_rank(), dist.get_world_size()
    return Place(rank, size, *((place.local_rank, place.local_size) if place else (rank, size)))


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """Turn what torch raises when a process has gone into an error for people.

    Raises:
        PeerLost: as its name says.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RlseqError) or not _of_a_peer(error):
            raise
        raise PeerLost(
            "another process of this training has ended or no longer answers, so this one ends too; what was saved "
            f"last is untouched ({reason_of(error)})."
        ) from error


def _of_a_peer(error: RuntimeError) -> bool:
    text = str(error)
    return isinstance(error, dist.DistError) or any(
        word in text for word in ("gloo", "Connection closed by peer", "Connection reset", "NCCL", "Broken pipe")
    )
