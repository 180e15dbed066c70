"""Opening an ONNX graph the way a small policy needs it, and comparing its inputs and outputs with a description."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from rlseq.errors import CorruptFile, RlseqError
from rlseq.player.onnx_file import OnnxFile, newer_runtime_needed
from rlseq.spec import Leaf, PolicySpec, StateLeaf

ACTION, Q_VALUES = "action", "q_values"
MAX_ELEMENTS = 2**28  # of one observation or state: a policy asking for more is damaged, and would take the memory
MAX_MEMORY = 4 << 30  # bytes of all graphs of a process: twice what a file may hold
SAME_AS_REQUESTED = 1  # onnxruntime's arena_extend_strategy that takes no more than is asked for
DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{f"tensor({name})": name for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")},
}


class Port(NamedTuple):
    """An input or output of a graph.

    Attributes:
        dtype: numpy name, or ONNX Runtime's own word for what numpy has no array of.
        shape: a number, or the name of a symbolic axis (None if it has no name).
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]

    def __str__(self) -> str:
        axes = ", ".join("?" if n is None else str(n) for n in self.shape)
        return f"{self.name}: {self.dtype} [{axes}]"


class Graph(NamedTuple):
    """An opened graph."""

    session: ort.InferenceSession
    inputs: dict[str, Port]
    outputs: dict[str, Port]


def open_graph(file: OnnxFile) -> Graph:
    """Open a checked file with one thread that never spins.

    A policy is a few microseconds of work: a pool of threads gains nothing, and its spinning (30 ms after every call,
    by default) slows the environment beside it.

    Raises:
        CorruptFile: ONNX Runtime refuses it.
        RlseqError: it needs a newer ONNX Runtime.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Bytes with "ORTM" in the right place would be read as another format, which has not been checked.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    _bounded_memory()
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.log_severity_level = 4  # errors are raised, and told in our words; warnings are for the exporter's author
    try:
        # No options out of the file, no second try that prints to stdout.
        session = ort.InferenceSession(
            file.data, options, providers=["CPUExecutionProvider"], read_config_from_model=0, enable_fallback=0
        )
        return Graph(session, _ports(session.get_inputs()), _ports(session.get_outputs()))
    except Exception as error:  # ONNX Runtime's exceptions have no common base but this
        needed = newer_runtime_needed(file, ort.__version__)
        if needed is not None:
            raise RlseqError(
                f"{file.path} (opset {file.opset}, IR version {file.ir_version}) needs onnxruntime {needed}; installed "
                f'is {ort.__version__}: pip install --upgrade "onnxruntime". Or export it again with a lower --opset.'
            ) from error
        raise CorruptFile(f"{file.path} is refused by ONNX Runtime {ort.__version__}: {first_line(error)}") from error


@functools.cache
def _bounded_memory() -> None:
    """Let all graphs of this process together take no more than `MAX_MEMORY`.

    A file of a kilobyte may ask for a constant of a terabyte; ONNX Runtime itself would take what the machine has.
    """
    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(place, ort.OrtArenaCfg(MAX_MEMORY, SAME_AS_REQUESTED, -1, -1))


def _ports(arguments: Sequence[Any]) -> dict[str, Port]:
    return {arg.name: Port(arg.name, DTYPES.get(arg.type, arg.type), tuple(arg.shape)) for arg in arguments}


def first_line(error: Exception) -> str:
    """The part of an ONNX Runtime message that a user can read: without error code, source file and C++ signature."""
    if "Available memory of" in str(error):
        return f"it asks for more than {MAX_MEMORY >> 30} GiB of memory"
    line = str(error).strip().partition("\n")[0]
    line = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", line)
    line = re.sub(r"^(Load model from .*? failed: ?)?/\S+:\d+ .*?\)( const)? ", "", line)
    return line[:300] or type(error).__name__


def check_spec(file: OnnxFile, spec: PolicySpec) -> None:
    """A description read from a file must make sense by itself.

    Raises:
        CorruptFile: it does not, or its environment's id would import a module.
    """
    if ":" in spec.env.id:
        raise CorruptFile(
            f"{file.path} is refused: its environment id {spec.env.id!r} would import a module, and a file may not do "
            f"that. If you trust it, type it yourself: --env {spec.env.id}"
        )
    leaves: list[Leaf | StateLeaf] = [*spec.observation, *spec.state]
    names = [leaf.name for leaf in leaves]
    sound = (
        len(set(names)) == len(names)
        and bool(spec.observation)
        and bool(spec.outputs)
        and 1 <= spec.action.n <= MAX_ELEMENTS
        and abs(spec.action.start) <= MAX_ELEMENTS
        and all(map(_is_sound, leaves))
        and all(leaf.shape.count(-1) == 1 for leaf in spec.state)
        and all(-1 not in leaf.shape for leaf in spec.observation)
    )
    if not sound:
        raise CorruptFile(f"{file.path} holds a policy description that contradicts itself: it was damaged or changed.")


def _is_sound(leaf: Leaf | StateLeaf) -> bool:
    return (
        leaf.dtype in DTYPES.values()
        and all(n >= -1 for n in leaf.shape)
        and math.prod(map(abs, leaf.shape)) <= MAX_ELEMENTS
    )


def check_ports(file: OnnxFile, spec: PolicySpec, graph: Graph) -> None:
    """The graph must have the inputs and outputs that the description names.

    Raises:
        CorruptFile: it has not; both are named.
    """
    expected = {leaf.name: Port(leaf.name, leaf.dtype, ("batch", *leaf.shape)) for leaf in spec.observation}
    expected |= {leaf.name: _state_port(leaf, leaf.name) for leaf in spec.state}
    results = {leaf.output: _state_port(leaf, leaf.output) for leaf in spec.state}
    if Q_VALUES in spec.outputs and ACTION in spec.outputs:
        results[Q_VALUES] = Port(Q_VALUES, "float32", ("batch", spec.action.n))
    head = head_of(spec)
    if head in graph.outputs:
        results[head] = head_port(head, graph.outputs[head].dtype, spec.action.n)
    check_signature(file, graph, expected, results, also=spec.outputs)


def check_signature(
    file: OnnxFile, graph: Graph, inputs: dict[str, Port], outputs: dict[str, Port], also: Sequence[str] = ()
) -> None:
    """The graph must have these inputs and no others, and these outputs, and outputs named as in `also`.

    Raises:
        CorruptFile: it has not; both are named.
    """
    if inputs.keys() != graph.inputs.keys():
        raise _mismatch(file, f"inputs {_names(inputs)}", f"inputs {_names(graph.inputs)}")
    missing = {*outputs, *also} - graph.outputs.keys()
    if missing:
        raise _mismatch(file, f"outputs {_names(missing)}", f"outputs {_names(graph.outputs)}")
    for ports, found in ((inputs, graph.inputs), (outputs, graph.outputs)):
        for name, port in ports.items():
            if not fits(port, found[name]):
                raise _mismatch(file, str(port), str(found[name]))


def _mismatch(file: OnnxFile, described: str, found: str) -> CorruptFile:
    described, found = (text if len(text) <= 400 else f"{text[:400]}..." for text in (described, found))
    return CorruptFile(f"{file.path}: its description promises {described}, its graph has {found}. Export it again.")


def _names(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"


def _state_port(leaf: StateLeaf, name: str) -> Port:
    return Port(name, leaf.dtype, tuple("batch" if n == -1 else n for n in leaf.shape))


def head_of(spec: PolicySpec) -> str:
    """The output that decides the action: `action`, or the first one."""
    return ACTION if ACTION in spec.outputs else spec.outputs[0]


def head_port(name: str, dtype: str, num_actions: int) -> Port:
    """What the deciding output must look like: action values [B, n] when it is a float, else actions [B]."""
    if dtype in ("float32", "float64", "float16"):
        return Port(name, dtype, ("batch", num_actions))
    return Port(name, dtype if dtype in ("int64", "int32") else "int64", ("batch",))


def fits(wanted: Port, found: Port, *, fixed_batch: bool = False) -> bool:
    """Whether a graph's port takes arrays of the wanted one; named axes must be free, `batch` not if `fixed_batch`."""
    if wanted.dtype != found.dtype or len(wanted.shape) != len(found.shape):
        return False
    for want, have in zip(wanted.shape, found.shape, strict=True):
        if want == "batch":
            if isinstance(have, int) and not fixed_batch:
                return False
        elif isinstance(have, int) and have != want:
            return False
    return True


def new_state(leaves: Sequence[StateLeaf], num_envs: int) -> tuple[np.ndarray, ...]:
    """The state at the start of `num_envs` episodes."""
    return tuple(leaf.zeros(num_envs) for leaf in leaves)
