"""What DQN learns with: online and target network, loss, and the update step.

Mnih et al. 2015 (doi:10.1038/nature14236) with Double DQN as a switch. Unlike the paper: Adam instead of RMSprop by
default, updates in bursts, and time limits that bootstrap (a truncated episode is not over).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlseq.dqn.config import DqnTraining
from rlseq.dqn.targets import bootstrap_value, td_loss, td_target
from rlseq.engine.device import Precision
from rlseq.engine.flat import FlatParameters
from rlseq.engine.update import Autograd, Loss, Part, UpdateInfo, UpdateStep
from rlseq.engine.weights import load_arrays, state_arrays
from rlseq.errors import NonFiniteLoss
from rlseq.nets.network import NetInput, QNetwork
from rlseq.replay.batch import TransitionBatch
from rlseq.replay.uniform import UniformReplay

SMALLEST_SCALE = 2.0**-14  # of the fp16 loss scaler
STATISTICS = ("loss", "grad_norm", "q_mean")


class DqnLearner:
    """Online and target network and the update step.

    Args:
        net: the online network, on its device.
        options: the whole training's.
        total_updates: length of the learning-rate schedule.
        precision: of the forward pass.
    """

    def __init__(self, net: QNetwork, options: DqnTraining, *, total_updates: int, precision: Precision) -> None:
        self.options = options.dqn
        self.batch_size = options.replay.batch_size
        self.device = next(net.parameters()).device
        self.net = net
        self.target = copy.deepcopy(net).eval().requires_grad_(False)
        self._target_flat = FlatParameters(self.target)
        self.update_step = UpdateStep(net, options.optim, total_updates=total_updates, precision=precision)
        self._gradients = Autograd(self.loss, precision, self.device)
        accumulate = options.optim.accumulate
        bounds = [round(k * self.batch_size / accumulate) for k in range(accumulate + 1)]
        self._cuts = [slice(a, b) for a, b in itertools.pairwise(bounds) if a < b]

    def loss(self, batch: TransitionBatch[Tensor]) -> Loss:
        """The loss of a batch, and the mean value of the actions taken."""
        q_BA, _ = self.net(NetInput(batch.obs))
        q_B = q_BA.gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            next_q_BA, _ = self.target(NetInput(batch.next_obs))
            online_q_BA = self.net(NetInput(batch.next_obs))[0] if self.options.double else None
            value_B = bootstrap_value(next_q_BA, online_q_BA, batch.next_legal)
            target_B = td_target(batch.reward, batch.discount, value_B)
        loss_B = td_loss(q_B, target_B, self.options.loss)
        if batch.weight is not None:
            loss_B = loss_B * batch.weight
        return Loss(loss_B.mean(), {"q_mean": q_B.detach().mean()})

    def burst(self, replay: UniformReplay, rng: np.random.Generator, num_updates: int) -> np.ndarray:
        """Several updates in a row on batches gathered at once.

        Returns:
            `[num_updates, 3]` float64: loss, gradient norm, mean value; the rows of skipped updates are left out.

        Raises:
            NonFiniteLoss: names the update.
        """
        size = self.batch_size
        big = replay.sample(rng, num_updates * size).map(self._to_device)
        statistics = torch.empty(num_updates, len(STATISTICS), device=self.device)
        done = 0
        for k in range(num_updates):
            batch = big.rows(slice(k * size, (k + 1) * size))
            info = self.update_step(self._parts(batch), self._gradients)
            if info.skipped:
                self._check_skipped(info)
                continue
            statistics[done, 0], statistics[done, 1] = info.loss, info.grad_norm
            statistics[done, 2] = info.metrics["q_mean"]
            done += 1
            if self.options.target_update == "soft":
                self._mix_target()
        return self._checked(statistics[:done])

    def _check_skipped(self, info: UpdateInfo) -> None:
        """An overflow of fp16 is mended by a smaller loss scale; NaN, or an overflow at any scale, is not."""
        scale = self.update_step.scaler.get_scale()
        if not bool(torch.isfinite(info.loss)) or scale < SMALLEST_SCALE:
            raise NonFiniteLoss(
                f"update {self.update_step.updates + 1} gave loss {info.loss.item():g} at scale {scale:g}"
            )

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _parts(self, batch: TransitionBatch[Tensor]) -> list[Part[TransitionBatch[Tensor]]]:
        if len(self._cuts) == 1:
            return [Part(batch, 1.0)]
        return [Part(batch.rows(cut), (cut.stop - cut.start) / self.batch_size) for cut in self._cuts]

    def _checked(self, statistics: Tensor) -> np.ndarray:
        rows = statistics.cpu().numpy().astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if bad.size:
            update = self.update_step.updates - len(rows) + int(bad[0]) + 1
            named = ", ".join(f"{name} {value:g}" for name, value in zip(STATISTICS, rows[bad[0]], strict=True))
            raise NonFiniteLoss(f"update {update} gave {named}")
        return rows

    def sync_target(self) -> None:
        """Copy the online network to the target network."""
        self._target_flat.data.copy_(self.update_step.flat.data)
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
        if not bool(torch.isfinite(self.update_step.flat.data).all()):
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
