"""What DQN learns with: online and target network, loss, and the update step.

Mnih et al. 2015 (doi:10.1038/nature14236) with Double DQN as a switch. Unlike the paper: Adam instead of RMSprop by
default, updates in bursts, and time limits that bootstrap (a truncated episode is not over).
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlseq.dqn.config import DqnTraining
from rlseq.dqn.gradients import ClosedForm, TdBatch, loss_of
from rlseq.dqn.targets import bootstrap_value, td_target
from rlseq.engine.captured import CapturedGradients
from rlseq.engine.device import Precision, autocast
from rlseq.engine.distributed import ALONE, World
from rlseq.engine.flat import FlatParameters
from rlseq.engine.recording import Captured, Recorder
from rlseq.engine.update import SMALLEST_SCALE, Autograd, Gradients, Loss, Part, Summed, UpdateInfo, UpdateStep
from rlseq.engine.weights import load_arrays, state_arrays
from rlseq.errors import NonFiniteLoss
from rlseq.nets.mlp_kernel import MlpKernel, fits
from rlseq.nets.network import NetInput, QNetwork
from rlseq.replay.batch import TransitionBatch, split_rows
from rlseq.replay.device import DeviceReplay, upload
from rlseq.replay.uniform import UniformReplay

STATISTICS = ("loss", "grad_norm", "q_mean")
LONGEST_WAIT = 4096  # updates whose statistics wait within a burst, each in some memory of its own
CHUNK_ROWS = 1024  # gathered at once, so that a long burst of large observations fits into memory, and into the cache


class DqnLearner:
    """Online and target network and the update step.

    Args:
        net: the online network, on its device.
        options: the whole training's.
        total_updates: length of the learning-rate schedule.
        precision: of the forward pass.
        world: the processes that train together; each learns from its own rows of a batch.
        recorder: records an update on a GPU; None: nothing does.
        unread: updates of earlier bursts whose statistics may wait on the device, so that all are read at once.

    Attributes:
        batch_size: rows of a batch that this process draws.
    """

    def __init__(
        self,
        net: QNetwork,
        options: DqnTraining,
        *,
        total_updates: int,
        precision: Precision,
        world: World = ALONE,
        recorder: Recorder | None = None,
        unread: int = 0,
    ) -> None:
        self.options = options.dqn
        rows = world.rows(options.replay.batch_size)
        self.batch_size = rows.stop - rows.start
        self.device = next(net.parameters()).device
        self.precision = precision
        self.net = net
        self.target = copy.deepcopy(net).eval().requires_grad_(False)
        self.update_step = UpdateStep(
            net, options.optim, total_updates=total_updates, precision=precision, recorder=recorder
        )
        self._target_flat = FlatParameters(self.target, self.update_step.flat.selection)
        self._recorded_target = None if recorder is None else Captured(self._target_of, recorder)
        self._most_unread = unread
        self._unread: list[UpdateInfo] = []
        accumulate = options.optim.accumulate
        bounds = [round(k * self.batch_size / accumulate) for k in range(accumulate + 1)]
        self._sizes = [b - a for a, b in itertools.pairwise(bounds) if a < b]
        # Autograd stops at frozen layers; the closed form computes every gradient.
        self.closed_form = (
            options.engine.gradients == "auto"
            and not self.update_step.flat.selection.frozen
            and precision.dtype is None
            and accumulate == 1
            and recorder is None
            and fits(net)
        )
        gradients = self._choose_gradients()
        gradients = gradients if recorder is None else CapturedGradients(gradients, recorder)
        share = self.batch_size / options.replay.batch_size
        self._gradients = gradients if world.alone else Summed(gradients, world.add_shares, share)
        self._at_once = max(1, CHUNK_ROWS // self.batch_size)
        self._online_values = self._value_function(net, self.batch_size)
        self._target_values = self._value_function(self.target, self.batch_size)
        self._chunk_values = self._value_function(self.target, self._at_once * self.batch_size)

    def _choose_gradients(self) -> Gradients:
        if self.closed_form:
            return ClosedForm(MlpKernel(self.net, self.batch_size, with_grad=True), self.options.loss)
        return Autograd(self.loss, self.precision, self.device)

    def _value_function(self, net: QNetwork, num_rows: int) -> Callable[[tuple[Tensor, ...]], Tensor]:
        """Values without gradients of as many rows, overwritten by the next call."""
        if self.closed_form:
            return MlpKernel(net, num_rows, with_grad=False).forward
        return functools.partial(self._values, net)

    def _values(self, net: QNetwork, obs: tuple[Tensor, ...]) -> Tensor:
        with torch.no_grad(), autocast(self.precision, self.device):
            return net(NetInput(obs))[0]

    def loss(self, batch: TdBatch) -> Loss:
        """The loss of a batch, and the mean value of the actions taken."""
        return loss_of(self.net(NetInput(batch.obs))[0], batch, self.options.loss)

    @property
    def how_recorded(self) -> str:
        """What to say of an update besides where its gradients come from."""
        if self._recorded_target is None:
            return "" if self.device.type == "cpu" else ", one kernel after the other"
        if self.update_step.recorded:
            return ", the update in CUDA graphs"
        return f", in CUDA graphs; {self.update_step.options.name} one kernel after the other"

    def burst(self, replay: UniformReplay | DeviceReplay, rng: np.random.Generator, num_updates: int) -> np.ndarray:
        """Several updates in a row.

        Returns:
            `[U, 3]` float64: loss, gradient norm, mean value of each update; the rows of skipped updates are left out.
            If statistics may wait, they are those of earlier bursts, or none.

        Raises:
            NonFiniteLoss: names the update.
        """
        # Before this burst, not after it: the earlier ones are done by now.
        earlier = [self.read()] if len(self._unread) > self._most_unread else []
        chunks = [min(self._at_once, num_updates - done) for done in range(0, num_updates, self._at_once)]
        rows = [self._learn(replay.sample(rng, num * self.batch_size).map(self._to_device)) for num in chunks]
        rows = earlier + rows
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def read(self) -> np.ndarray:
        """The statistics that wait on the device; waits for it.

        Raises:
            NonFiniteLoss: names the update.
        """
        infos, self._unread = self._unread, []
        return self._checked(infos)

    def _learn(self, big: TransitionBatch[Tensor]) -> np.ndarray:
        """Updates on the batches of a chunk of transitions."""
        infos = []
        for batch in self._problems(big):
            info = self.update_step(self._parts(batch), self._gradients)
            if info.skipped:
                self._check_skipped(info)
                continue
            infos.append(info)
            if self.options.target_update == "soft":
                self._mix_target()
        if self._most_unread:
            self._unread += infos
            infos = []
            if len(self._unread) >= LONGEST_WAIT:
                return self.read()
        return self._checked(infos)

    def _problems(self, big: TransitionBatch[Tensor]) -> Iterator[TdBatch]:
        """One problem after the other, because targets may depend on the update before.

        While the target network stands still, its values are computed in one pass; and so are the targets, unless the
        online network chooses the next action.
        """
        size = self.batch_size
        if self._recorded_target is not None:
            for batch in split_rows(big, size):
                (target_B,) = self._recorded_target(batch.reward, batch.discount, batch.next_obs, batch.next_legal)
                yield TdBatch(batch.obs, batch.action, target_B, batch.weight)
            return
        if self.options.target_update == "soft":
            for batch in split_rows(big, size):
                yield self._with_targets(batch, self._target_values(batch.next_obs))
            return
        full = len(big.action) == self._at_once * size
        next_q = self._chunk_values(big.next_obs) if full else self._values(self.target, big.next_obs)
        if not self.options.double:
            yield from split_rows(self._with_targets(big, next_q), size)
            return
        for batch, values in zip(split_rows(big, size), next_q.split(size), strict=True):
            yield self._with_targets(batch, values)

    def _with_targets(self, batch: TransitionBatch[Tensor], next_q_BA: Tensor) -> TdBatch:
        online_q_BA = self._online_values(batch.next_obs) if self.options.double else None
        value_B = bootstrap_value(next_q_BA, online_q_BA, batch.next_legal)
        return TdBatch(batch.obs, batch.action, td_target(batch.reward, batch.discount, value_B), batch.weight)

    def _target_of(
        self, reward_B: Tensor, discount_B: Tensor, next_obs: tuple[Tensor, ...], next_legal_BA: Tensor | None
    ) -> tuple[Tensor]:
        """Targets of one batch, by both networks as they are."""
        next_q_BA = self._values(self.target, next_obs)
        online_q_BA = self._values(self.net, next_obs) if self.options.double else None
        return (td_target(reward_B, discount_B, bootstrap_value(next_q_BA, online_q_BA, next_legal_BA)),)

    def _check_skipped(self, info: UpdateInfo) -> None:
        """An overflow of fp16 is mended by a smaller loss scale; NaN, or an overflow at any scale, is not."""
        scale = self.update_step.scaler.get_scale()
        if not bool(torch.isfinite(info.loss)) or scale < SMALLEST_SCALE:
            raise NonFiniteLoss(
                f"update {self.update_step.updates + 1} gave loss {info.loss.item():g} at scale {scale:g}"
            )

    def _to_device(self, array: np.ndarray | Tensor) -> Tensor:
        return array if isinstance(array, Tensor) else upload(array, self.device)

    def _parts(self, batch: TdBatch) -> list[Part[TdBatch]]:
        if len(self._sizes) == 1:
            return [Part(batch, 1.0)]
        parts = split_rows(batch, self._sizes)
        return [Part(part, size / self.batch_size) for part, size in zip(parts, self._sizes, strict=True)]

    def _checked(self, infos: Sequence[UpdateInfo]) -> np.ndarray:
        if not infos:
            return np.empty((0, len(STATISTICS)))
        columns = [[i.loss for i in infos], [i.grad_norm for i in infos], [i.metrics["q_mean"] for i in infos]]
        rows = torch.stack([torch.stack(column) for column in columns], dim=1).cpu().numpy().astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if bad.size:
            update = self.update_step.updates - len(rows) + int(bad[0]) + 1
            named = ", ".join(f"{name} {value:g}" for name, value in zip(STATISTICS, rows[bad[0]], strict=True))
            raise NonFiniteLoss(f"update {update} gave {named}")
        return rows

    def sync_target(self) -> None:
        """Copy the online network to the target network."""
        self._target_flat.weights.copy_(self.update_step.flat.weights)
        self._copy_buffers()

    def _mix_target(self) -> None:
        self._target_flat.data.lerp_(self.update_step.flat.data, self.options.tau)
        self._copy_buffers()

    def _copy_buffers(self) -> None:
        for target, online in zip(self.target.buffers(), self.net.buffers(), strict=True):
            target.copy_(online)

    def model(self) -> dict[str, np.ndarray]:
        """The online network's weights by their names; views where they lie on the CPU.

        Raises:
            NonFiniteLoss: a weight is NaN or infinite, which no file should hold.
        """
        if not bool(torch.isfinite(self.update_step.flat.weights).all()):
            raise NonFiniteLoss(f"the weights are NaN or infinite after update {self.update_step.updates}")
        return state_arrays(self.net)

    def load_model(self, arrays: Mapping[str, np.ndarray], where: str) -> None:
        """Put weights into the online and the target network.

        Raises:
            CorruptFile: names or shapes are those of another network.
        """
        load_arrays(self.net, arrays, where)
        self.sync_target()

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Target network and update step, as arrays and numbers."""
        arrays = {f"target.{name}": array for name, array in state_arrays(self.target).items()}
        moments, numbers = self.update_step.state()
        return {**arrays, **{f"optimizer.{name}": array for name, array in moments.items()}}, numbers

    def load_state(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any], where: str) -> None:
        """Go on from what `state` gave; the weights are loaded apart."""
        load_arrays(self.target, _below(arrays, "target."), where)
        self.update_step.load(_below(arrays, "optimizer."), numbers)


def _below(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
