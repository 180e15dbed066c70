"""A sequence model that is one .onnx file, run by ONNX Runtime alone: no torch, no onnx package.

Shapes: B sequences, T places, P places answered at (T, or 1 of a model that reads everything first), S places of a
source, F features.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rlseq.errors import CorruptFile, RlseqError, UsageError
from rlseq.player.graph import Graph, Port, check_signature, first_line, open_graph
from rlseq.player.onnx_file import read_onnx_file
from rlseq.player.sequence_graph import SOURCE, check_sequence_spec, input_ports, output_port
from rlseq.player.sequence_inputs import as_array, graph_inputs
from rlseq.sequence import SEQUENCE_KEY, SequenceSpec, SequenceState, decode_sequence_spec
from rlseq.spec import SPEC_KEY


class OnnxSequence:
    """An exported sequence model, as `rlseq.player.generate.Stepper` and for whole sequences.

    The state, keys and values of a Transformer or what a recurrent network remembers, is kept by the caller: it goes in
    and comes out, one row a sequence.

    Attributes:
        spec: the model's description.
        path: the file.
    """

    def __init__(self, path: Path, spec: SequenceSpec, graph: Graph) -> None:
        self.path = path
        self.spec = spec
        self._run_graph = graph.session.run
        self._answer = output_port(spec)
        self._outputs = [self._answer.name, *(leaf.output for leaf in spec.state)]
        self._translates = spec.signature.kind == "translate"

    def initial_state(self, batch: int) -> tuple[np.ndarray, ...]:
        """The state before the first place of `batch` sequences."""
        return tuple(leaf.zeros(batch) for leaf in self.spec.state)

    def whole(self, inputs: Any, given: np.ndarray | None = None, source: Any = None) -> np.ndarray:
        """Outputs `[B, P, ...]` for whole sequences.

        Args:
            inputs, source, given: as in `step`. Of a series that is read place by place, what is answered at padding
                means nothing.

        Raises:
            RlseqError, CorruptFile: as `step`.
        """
        inputs = as_array(self.path, inputs)
        return self.step(inputs, self.initial_state(len(inputs)), source=source, given=given)[0]

    def step(
        self, inputs: Any, state: tuple[Any, ...], *, source: Any = None, given: np.ndarray | None = None
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Read on.

        Args:
            inputs: tokens `[B, T]`, whole numbers below the vocabulary, or raw values `[B, T, F]`; any number of
                sequences, any number of places.
            state: from `initial_state` or the step before.
            source: of `translate`, in the first step alone: tokens `[B, S]` of what is to be answered.
            given: which places are real, bool: of the source, else of the values; None: all.

        Returns:
            Outputs `[B, P, ...]` float32: logits of the token after each place, or of the classes; or the values that
            follow, in their own unit. And the next state.

        Raises:
            RlseqError: inputs or state do not suit the model.
            CorruptFile: the graph gives NaN, or other shapes than its description says.
        """
        feed = graph_inputs(self.path, self.spec, inputs, source, given)
        batch, time = next(iter(feed.values())).shape[:2]
        read = feed[SOURCE].shape[1] if self._translates else 0
        feed |= self._checked_state(state, batch)
        if self._translates:
            self._check_source(state, read)
        try:
            outputs, *after = self._run_graph(self._outputs, feed)
        except Exception as error:  # ONNX Runtime's exceptions have no common base but this
            raise CorruptFile(f"{self.path}: ONNX Runtime could not run the graph: {first_line(error)}") from error
        name, _, (_, places, width) = self._answer
        wanted = (batch, time if places == "time" else places, width)
        if outputs.shape != wanted:
            raise CorruptFile(f"{self.path}: {name} came out as {outputs.shape}, not {wanted}.")
        if np.isnan(outputs).any():
            raise CorruptFile(f"{self.path}: {name} holds NaN: its weights are broken. Export it again.")
        for leaf, before, value in zip(self.spec.state, state, after, strict=True):
            if not (self._fits(leaf, value, batch) and _follows(leaf, before, value, time, read)):
                raise CorruptFile(
                    f"{self.path}: {leaf.output[:80]} came out as {value.dtype} {value.shape}; its description says "
                    f"{leaf.dtype} {leaf.shape}, window {self.spec.window}. Export it again."
                )
        return outputs, tuple(after)

    def _checked_state(self, state: tuple[Any, ...], batch: int) -> dict[str, np.ndarray]:
        if len(state) != len(self.spec.state):
            raise RlseqError(
                f"{self.path} carries {len(self.spec.state)} state arrays, {len(state)} were given: start with "
                f"initial_state({batch}) and hand on what step returned."
            )
        feed = {}
        for leaf, value in zip(self.spec.state, state, strict=True):
            if not self._fits(leaf, value, batch):
                raise RlseqError(
                    f"the state {leaf.name} is {value.dtype} of shape {value.shape}; for {batch} sequences the model "
                    f"takes {leaf.dtype} of shape {leaf.shape}, window {self.spec.window}."
                )
            feed[leaf.name] = value
        return feed

    def _check_source(self, state: tuple[Any, ...], num: int) -> None:
        """A source is read once, as a whole, before the first token of the answer."""
        leaves = zip(self.spec.state, state, strict=True)
        sizes = {value.shape[leaf.shape.index("source")] for leaf, value in leaves if "source" in leaf.shape}
        if len(sizes) > 1:
            raise RlseqError(f"the state of {self.path} holds {SOURCE}s of {sorted(sizes)} places: it is of two texts.")
        if sizes == {0} and not num:
            raise RlseqError(f"{self.path} answers to a {SOURCE}: give it in the first step.")
        if sizes != {0} and num:
            raise RlseqError(f"{self.path} has read its {SOURCE} already: give none in the steps that follow.")

    def _fits(self, leaf: SequenceState, value: np.ndarray, batch: int) -> bool:
        """Whether an array is one of the state's; of what is past, no more is kept than the window lets be seen."""
        if value.ndim != len(leaf.shape) or value.dtype != leaf.dtype:
            return False
        for size, axis in zip(value.shape, leaf.shape, strict=True):
            if axis == "past":
                if self.spec.window is not None and size >= self.spec.window:
                    return False
            elif axis != "source" and size != (batch if axis == "batch" else axis):
                return False
        return True


def _follows(leaf: SequenceState, before: np.ndarray, after: np.ndarray, time: int, read: int) -> bool:
    """Whether no more is remembered than was read, and of a source everything."""
    for old, new, axis in zip(before.shape, after.shape, leaf.shape, strict=True):
        if (axis == "past" and new > old + time) or (axis == "source" and new != old + read):
            return False
    return True


def load_sequence(path: str | Path) -> OnnxSequence:
    """Load a sequence model.

    Args:
        path: an .onnx file that rlseq wrote.

    Raises:
        CorruptFile: it is no ONNX file, is damaged, refers to other files, or its description does not fit its graph.
        NewerFormat: written by a newer rlseq.
        UsageError: it is a policy, or of another tool.
        RlseqError: it cannot be read, or needs a newer ONNX Runtime.
    """
    file = read_onnx_file(Path(path))
    text = file.metadata.get(SEQUENCE_KEY)
    if text is None and SPEC_KEY in file.metadata:
        raise UsageError(f"{path} is a policy, not a sequence model; let it act: rlseq play {path}")
    if text is None:
        raise UsageError(
            f"{path} has no description of a sequence model ({SEQUENCE_KEY}): give a file that rlseq train seq or "
            "rlseq export wrote."
        )
    spec = decode_sequence_spec(text, str(file.path))
    check_sequence_spec(file, spec)
    graph = open_graph(file)
    inputs = [*input_ports(spec), *(Port(s.name, s.dtype, s.shape) for s in spec.state)]
    outputs = [output_port(spec), *(Port(s.output, s.dtype, s.shape) for s in spec.state)]
    check_signature(file, graph, {port.name: port for port in inputs}, {port.name: port for port in outputs})
    return OnnxSequence(file.path, spec, graph)
