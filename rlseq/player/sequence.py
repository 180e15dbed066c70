"""A sequence model that is one .onnx file, stepped by ONNX Runtime alone: no torch, no onnx package.

Shapes: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from rlseq.errors import CorruptFile, RlseqError, UsageError
from rlseq.player.graph import DTYPES, MAX_ELEMENTS, Graph, Port, check_signature, first_line, open_graph
from rlseq.player.onnx_file import OnnxFile, read_onnx_file
from rlseq.sequence import SEQUENCE_KEY, SequenceSpec, SequenceState, decode_sequence_spec
from rlseq.spec import SPEC_KEY

TOKENS, LOGITS = "tokens", "logits"


class OnnxSequence:
    """An exported sequence model as `rlseq.player.generate.Stepper`.

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
        self._outputs = [LOGITS, *(leaf.output for leaf in spec.state)]

    def initial_state(self, batch: int) -> tuple[np.ndarray, ...]:
        """The state before the first token of `batch` sequences."""
        return tuple(leaf.zeros(batch) for leaf in self.spec.state)

    def whole(
        self, inputs: np.ndarray, given: np.ndarray | None = None, source: np.ndarray | None = None
    ) -> np.ndarray:
        """Outputs `[B, T, V]` for whole sequences."""
        return self.step(inputs, self.initial_state(len(inputs)))[0]

    def step(self, tokens_BT: np.ndarray, state: tuple[Any, ...]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Read tokens.

        Args:
            tokens_BT: whole numbers below the vocabulary; any number of sequences, any number of tokens.
            state: from `initial_state` or the step before.

        Returns:
            Logits `[B, T, V]` float32 of the token after each, and the next state.

        Raises:
            RlseqError: tokens or state do not suit the model.
            CorruptFile: the graph gives NaN, or other shapes than its description says.
        """
        tokens_BT = self._checked_tokens(tokens_BT)
        batch, time = tokens_BT.shape
        feed = {TOKENS: tokens_BT, **self._checked_state(state, batch)}
        try:
            logits_BTV, *after = self._run_graph(self._outputs, feed)
        except Exception as error:  # ONNX Runtime's exceptions have no common base but this
            raise CorruptFile(f"{self.path}: ONNX Runtime could not run the graph: {first_line(error)}") from error
        wanted = (batch, time, self.spec.vocabulary)
        if logits_BTV.shape != wanted:
            raise CorruptFile(f"{self.path}: {LOGITS} came out as {logits_BTV.shape}, not {wanted}.")
        if np.isnan(logits_BTV).any():
            raise CorruptFile(f"{self.path}: {LOGITS} holds NaN: its weights are broken. Export it again.")
        for leaf, value in zip(self.spec.state, after, strict=True):
            if not self._fits(leaf, value, batch):
                raise CorruptFile(
                    f"{self.path}: {leaf.output[:80]} came out as {value.dtype} {value.shape}; its description says "
                    f"{leaf.dtype} {leaf.shape}, window {self.spec.window}. Export it again."
                )
        return logits_BTV, tuple(after)

    def _checked_tokens(self, tokens: np.ndarray) -> np.ndarray:
        tokens = np.asarray(tokens)
        if tokens.ndim != 2 or tokens.size == 0 or tokens.dtype.kind not in "iu":
            raise RlseqError(
                f"{self.path} takes tokens [batch, time] of whole numbers, at least one; these are {tokens.dtype} "
                f"of shape {tokens.shape}."
            )
        # A graph would take -1 for the last token of the vocabulary.
        if tokens.min() < 0 or tokens.max() >= self.spec.vocabulary:
            raise RlseqError(
                f"{self.path} knows the tokens 0 to {self.spec.vocabulary - 1}; these go from {tokens.min()} to "
                f"{tokens.max()}."
            )
        return tokens.astype(np.int64, copy=False)

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

    def _fits(self, leaf: SequenceState, value: np.ndarray, batch: int) -> bool:
        """Whether an array is one of the state's; of what is past, no more is kept than the window lets be seen."""
        if value.ndim != len(leaf.shape) or value.dtype != leaf.dtype:
            return False
        for size, axis in zip(value.shape, leaf.shape, strict=True):
            if axis == "past":
                if self.spec.window is not None and size >= self.spec.window:
                    return False
            elif size != (batch if axis == "batch" else axis):
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
        raise UsageError(f"{path} is a policy, which writes no text; let it act: rlseq play {path}")
    if text is None:
        raise UsageError(
            f"{path} has no description of a sequence model ({SEQUENCE_KEY}): give a file that rlseq train seq or "
            "rlseq export wrote."
        )
    spec = decode_sequence_spec(text, str(file.path))
    _check_spec(file, spec)
    graph = open_graph(file)
    inputs = [Port(TOKENS, "int64", ("batch", "time")), *(Port(s.name, s.dtype, s.shape) for s in spec.state)]
    outputs = [
        Port(LOGITS, "float32", ("batch", "time", spec.vocabulary)),
        *(Port(s.output, s.dtype, s.shape) for s in spec.state),
    ]
    check_signature(file, graph, {port.name: port for port in inputs}, {port.name: port for port in outputs})
    return OnnxSequence(file.path, spec, graph)


def _check_spec(file: OnnxFile, spec: SequenceSpec) -> None:
    """A description read from a file must make sense by itself, and ask for no more memory than a model may.

    Raises:
        CorruptFile: it does not.
    """
    names = {TOKENS, *(leaf.name for leaf in spec.state)}
    outputs = {LOGITS, *(leaf.output for leaf in spec.state)}
    sound = (
        len(names) == len(outputs) == len(spec.state) + 1
        and max(spec.vocabulary, spec.context, spec.window or 1) <= MAX_ELEMENTS
        and all(map(_is_sound, spec.state))
    )
    if not sound:
        raise CorruptFile(f"{file.path} holds a description of a sequence model that contradicts itself.")


def _is_sound(leaf: SequenceState) -> bool:
    sizes = [axis for axis in leaf.shape if isinstance(axis, int)]
    return (
        leaf.dtype in DTYPES.values()
        and len(leaf.shape) <= 8
        and len(leaf.shape) - len(sizes) == len(set(leaf.shape) & {"batch", "past"})
        and math.prod(max(size, 1) for size in sizes) <= MAX_ELEMENTS
    )
