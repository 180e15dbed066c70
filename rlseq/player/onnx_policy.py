"""A policy that is one .onnx file, played by ONNX Runtime alone: no torch, no onnx package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rlseq.errors import CorruptFile, NewerFormat, RlseqError, UsageError
from rlseq.player.foreign import foreign_spec, typed_env
from rlseq.player.graph import Q_VALUES, Graph, check_ports, check_spec, first_line, head_of, new_state, open_graph
from rlseq.player.onnx_file import OnnxFile, read_onnx_file
from rlseq.purposes import use_of
from rlseq.sequence import SEQUENCE_KEY, decode_sequence_spec
from rlseq.spec import (
    FEW,
    FORMAT_KEY,
    SMALL,
    SPEC_FORMAT,
    SPEC_KEY,
    Leaf,
    Policy,
    PolicySpec,
    StateLeaf,
    StepInput,
    cast,
    decode_spec,
    encode_observations,
)


class OnnxPolicy(Policy[np.ndarray]):
    """Acts greedily with an ONNX graph.

    The graph takes raw observations, so nothing is prepared here but dtypes. Recurrent state is kept by the caller: it
    goes in and comes out, one row an environment.

    Attributes:
        spec: the policy's description.
        path: the file.
    """

    def __init__(self, path: Path, spec: PolicySpec, graph: Graph) -> None:
        self.path = path
        self.spec = spec
        # What `session.run` calls after it has looked for missing inputs (1.2 us), of which there are none here.
        self._run_graph = getattr(graph.session, "_sess", graph.session).run
        self._leaves = tuple(
            (leaf.name, np.dtype(leaf.dtype), leaf.shape, np.dtype(leaf.dtype).kind == "f", leaf)
            for leaf in spec.observation
        )
        self._state = tuple((leaf, leaf.shape.index(-1)) for leaf in spec.state)
        self._start, self._n = spec.action.start, spec.action.n
        head = head_of(spec)
        self._head_is_values = graph.outputs[head].dtype.startswith("float")
        self._outputs = [head, *(leaf.output for leaf in spec.state)]
        self._values_output = head if self._head_is_values else Q_VALUES if Q_VALUES in spec.outputs else None
        first_axis = graph.inputs[spec.observation[0].name].shape[0]
        self._fixed_batch = first_axis if isinstance(first_axis, int) else None

    def initial_state(self, num_envs: int) -> tuple[np.ndarray, ...]:
        """Zeros, one row an environment; `()` for a policy without memory."""
        return new_state(self.spec.state, num_envs)

    def act(
        self, step: StepInput[np.ndarray], state: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Choose actions for B environments.

        Args:
            step: leaves `[B, *leaf.shape]`, of any dtype that converts without loss. Where `first` is true the row's
                state is cleared before use.
            state: from `initial_state` or the step before.

        Returns:
            Actions `[B]` int64 in the environment's own numbering, and the next state.

        Raises:
            RlseqError: a wrong shape, NaN, or a number that the input's dtype cannot hold.
        """
        feed, batch = self._feed(step.obs)
        if self._state:
            self._feed_state(feed, state, step.first, batch)
        results = self._run(self._outputs, feed, batch)
        return self._actions(results[0], batch), tuple(results[1:]) if self._state else ()

    def q_values(self, leaves: Sequence[Any], state: tuple[np.ndarray, ...] = ()) -> np.ndarray:
        """Action values `[B, n]` of observations `[B, *leaf.shape]` (and the state that belongs to them).

        Raises:
            RlseqError: as `act`, or the graph gives no action values.
        """
        if self._values_output is None:
            raise RlseqError(f"{self.path} gives no action values: it has only the output {self._outputs[0]}.")
        feed, batch = self._feed(leaves)
        if self._state:
            self._feed_state(feed, state, np.zeros(batch, np.bool_), batch)
        values: np.ndarray = self._run([self._values_output], feed, batch)[0]
        return values

    def __call__(self, observation: Any) -> int:
        """The action for one raw observation of the environment.

        Raises:
            RlseqError: as `act`, or the policy has a memory, which this call could not keep.
        """
        if self._state:
            raise RlseqError(
                f"{self.path} is a recurrent policy, its memory must be carried on: use policy.initial_state(n) and "
                "policy.act(step, state)."
            )
        feed, batch = self._feed(encode_observations([observation], self.spec))
        return int(self._actions(self._run(self._outputs[:1], feed, batch)[0], batch)[0])

    def _feed(self, obs: Sequence[Any]) -> tuple[dict[str, np.ndarray], int]:
        """The graph's observation inputs, and the batch size."""
        if len(obs) != len(self._leaves):
            raise RlseqError(f"{self.path} takes {len(self._leaves)} arrays of observations, {len(obs)} were given.")
        feed = {}
        batch = -1
        for k, (name, dtype, shape, is_float, leaf) in enumerate(self._leaves):
            value = obs[k]
            if type(value) is not np.ndarray or value.dtype != dtype or value.shape[1:] != shape or not value.shape:
                value = _converted(value, leaf)
            if is_float and _has_nan(value):
                raise RlseqError(f"{name} holds NaN; the policy cannot act on it. Mend the environment's observation.")
            if batch == -1:
                batch = len(value)
            elif len(value) != batch:
                raise RlseqError(
                    f"{name} has {len(value)} rows, {self._leaves[0][0]} has {batch}: one row an environment."
                )
            feed[name] = value
        return feed, batch

    def _feed_state(
        self, feed: dict[str, np.ndarray], state: tuple[np.ndarray, ...], first: np.ndarray, batch: int
    ) -> None:
        if len(state) != len(self._state):
            raise RlseqError(
                f"{self.path} carries {len(self._state)} state arrays, {len(state)} were given: start with "
                f"policy.initial_state({batch}) and hand on what policy.act returned."
            )
        begins = bool(first.any())
        for (leaf, axis), value in zip(self._state, state, strict=True):
            if value.ndim != len(leaf.shape) or value.shape[axis] != batch:
                raise RlseqError(
                    f"the state {leaf.name} has shape {value.shape}, the policy takes {_with_batch(leaf, batch)} for "
                    f"{batch} environments."
                )
            if begins:
                value = value.copy()  # the caller may still hold the state that it handed in
                np.moveaxis(value, axis, 0)[first] = 0
            feed[leaf.name] = value

    def _run(self, outputs: list[str], feed: dict[str, np.ndarray], batch: int) -> list[np.ndarray]:
        try:
            return self._run_graph(outputs, feed, None)
        except Exception as error:  # ONNX Runtime's exceptions have no common base but this
            if self._fixed_batch is not None and batch != self._fixed_batch:
                raise RlseqError(
                    f"{self.path} was exported for batches of {self._fixed_batch} only, not {batch}: play it with "
                    f"--envs {self._fixed_batch}, or export it again with a symbolic batch axis."
                ) from error
            raise RlseqError(f"{self.path}: ONNX Runtime could not run the graph: {first_line(error)}") from error

    def _actions(self, head: np.ndarray, batch: int) -> np.ndarray:
        """The graph's deciding output as actions `[B]` int64 in the environment's numbering."""
        start, n = self._start, self._n
        if self._head_is_values:
            if head.shape != (batch, n):
                raise CorruptFile(f"{self.path}: {self._outputs[0]} came out as {head.shape}, not ({batch}, {n}).")
            if _has_nan(head):
                raise RlseqError(
                    f"{self.path}: {self._outputs[0]} holds NaN; its weights or its observations are broken."
                )
            return head.argmax(1) + start  # of equal values the lowest index
        if head.shape != (batch,):
            raise CorruptFile(f"{self.path}: {self._outputs[0]} came out as {head.shape}, not ({batch},).")
        stop = start + n
        for action in head.tolist():
            if not start <= action < stop:
                raise CorruptFile(
                    f"{self.path}: {self._outputs[0]} came out as {action}; the environment's actions are {start} to "
                    f"{stop - 1}."
                )
        return head if head.dtype == np.int64 else head.astype(np.int64)


def _has_nan(values: np.ndarray) -> bool:
    """Whether floats hold NaN: quicker than looking at each one (1.4 us) are sums (0.4) and dot products (0.75)."""
    if values.size <= FEW:
        total = sum(values.ravel().tolist())
        return total != total and bool(np.isnan(values).any())  # infinity less infinity is NaN too
    if values.size <= SMALL and values.dtype != np.float16:
        square = np.vdot(values, values)
        return bool(square != square)
    return bool(np.isnan(values).any())


def _converted(value: Any, leaf: Leaf) -> np.ndarray:
    """Rows of observations as the graph takes them: float64, integers, lists are converted as `spec.cast` does."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # ragged lists
        raise RlseqError(f"{leaf.name}: its rows differ in shape; the policy takes (batch, *{leaf.shape}).") from error
    if array.shape[1:] != leaf.shape or not array.shape:
        raise RlseqError(
            f"{leaf.name} has shape {array.shape}; the policy takes {('batch', *leaf.shape)}, one row an environment."
        )
    return cast(array, msgspec.structs.replace(leaf, shape=array.shape))


def _with_batch(leaf: StateLeaf, batch: int) -> tuple[int, ...]:
    return tuple(batch if n == -1 else n for n in leaf.shape)


def load_onnx(
    path: str | Path,
    *,
    env_id: str | None = None,
    inputs: Sequence[str] | None = None,
    action_output: str | None = None,
) -> OnnxPolicy:
    """Load a policy.

    Args:
        path: an .onnx file, of rlseq or of another tool.
        env_id: plays in this environment instead of the file's; needed for another tool's file.
        inputs: another tool's file only: inputs of the graph, one for each part of the observation.
        action_output: another tool's file only: the output that decides, action values `[B, n]` or actions `[B]`.

    Raises:
        CorruptFile: it is no ONNX file, is damaged, refers to other files, or its description does not fit its graph.
        NewerFormat: written by a newer rlseq.
        UsageError: it does not describe itself, and what was typed does not suffice; or it is a sequence model.
        RlseqError: it cannot be read, or needs a newer ONNX Runtime.
    """
    file = read_onnx_file(Path(path))
    spec = _own_spec(file)
    graph = open_graph(file)
    if spec is None:
        spec = foreign_spec(file, graph, env_id, inputs, action_output)
    else:
        if inputs is not None or action_output is not None:
            raise UsageError(f"{path} describes itself: leave --input and --action-output out.")
        check_ports(file, spec, graph)
        if env_id is not None:
            spec = msgspec.structs.replace(spec, env=typed_env(env_id))
    return OnnxPolicy(file.path, spec, graph)


def _own_spec(file: OnnxFile) -> PolicySpec | None:
    """The description inside a file of rlseq; None if there is none."""
    version, text = file.metadata.get(FORMAT_KEY), file.metadata.get(SPEC_KEY)
    if version is None and text is None:
        if SEQUENCE_KEY in file.metadata:
            task = decode_sequence_spec(file.metadata[SEQUENCE_KEY], str(file.path)).task
            raise UsageError(
                f"{file.path} is a sequence model, which acts in no environment: {use_of(task, file.path)}"
            )
        return None
    if version is None or text is None or not re.fullmatch("[0-9]{1,9}", version):
        raise CorruptFile(f"{file.path} has incomplete rlseq metadata ({FORMAT_KEY}, {SPEC_KEY}): export it again.")
    if int(version) > SPEC_FORMAT:
        raise NewerFormat(
            f"{file.path} has format_version {version}; this rlseq reads up to {SPEC_FORMAT}: update rlseq."
        )
    spec = decode_spec(text, str(file.path))
    check_spec(file, spec)
    return spec
