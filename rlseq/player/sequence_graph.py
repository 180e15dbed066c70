"""What the graph of a sequence model takes and gives, by the model's kind.

| kind | inputs | output |
|---|---|---|
| `tokens` | `tokens` `[batch, time]` | `logits` `[batch, time, V]` |
| `translate` | the same, `source` and `given` `[batch, source]` | `logits` `[batch, time, V]` |
| `classify` | `values` `[batch, time, F]` | `logits` `[batch, time, K]` |
| `forecast` | `values` `[batch, time, F]` | `forecast` `[batch, time, H * Q]` |
| these two in one pass | `values`, `given` `[batch, time]` | the same, `[batch, 1, ...]` |

Beside them every array of the state goes in and out; what reads in one pass has none. A model of `translate` reads its
source in the first call, and in those that follow one of length 0. Values are raw, forecasts too.
"""

from __future__ import annotations

import math

from rlseq.errors import CorruptFile
from rlseq.player.graph import DTYPES, MAX_ELEMENTS, Port
from rlseq.player.onnx_file import OnnxFile
from rlseq.sequence import SequenceSpec, SequenceState

TOKENS, SOURCE, GIVEN, VALUES = "tokens", "source", "given", "values"
LOGITS, FORECAST = "logits", "forecast"
MAX_AXES = 8


def input_ports(spec: SequenceSpec) -> list[Port]:
    """What the graph takes beside its state, in its order."""
    if spec.signature.reads_tokens:
        tokens = Port(TOKENS, "int64", ("batch", "time"))
        source = [Port(SOURCE, "int64", ("batch", "source")), Port(GIVEN, "bool", ("batch", "source"))]
        return [tokens, *source] if spec.signature.kind == "translate" else [tokens]
    values = Port(VALUES, "float32", ("batch", "time", len(spec.signature.features)))
    return [values, Port(GIVEN, "bool", ("batch", "time"))] if spec.one_pass else [values]


def output_port(spec: SequenceSpec) -> Port:
    """What the graph gives beside its state."""
    name = FORECAST if spec.signature.kind == "forecast" else LOGITS
    return Port(name, "float32", ("batch", 1 if spec.one_pass else "time", spec.signature.num_outputs))


def check_sequence_spec(file: OnnxFile, spec: SequenceSpec) -> None:
    """A description read from a file must make sense by itself, and ask for no more memory than a model may.

    Raises:
        CorruptFile: it does not.
    """
    ports, signature = input_ports(spec), spec.signature
    inputs = {port.name for port in ports} | {leaf.name for leaf in spec.state}
    outputs = {output_port(spec).name} | {leaf.output for leaf in spec.state}
    sizes = (signature.vocabulary, signature.num_outputs, len(signature.features), spec.context, spec.window or 1)
    reads_source = any("source" in leaf.shape for leaf in spec.state)
    sound = (
        len(inputs) == len(ports) + len(spec.state)
        and len(outputs) == 1 + len(spec.state)
        and max(sizes) <= MAX_ELEMENTS
        and reads_source == (signature.kind == "translate")
        and all(map(_is_sound, spec.state))
    )
    if not sound:
        raise CorruptFile(f"{file.path} holds a description of a sequence model that contradicts itself.")


def _is_sound(leaf: SequenceState) -> bool:
    sizes = [axis for axis in leaf.shape if isinstance(axis, int)]
    return (
        leaf.dtype in DTYPES.values()
        and len(leaf.shape) <= MAX_AXES
        and len(leaf.shape) - len(sizes) == len(set(leaf.shape) & {"batch", "past", "source"})
        and math.prod(max(size, 1) for size in sizes) <= MAX_ELEMENTS
    )
