"""What is refused before ONNX Runtime opens a file (cases X5, X18, X19)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlseq.errors import CorruptFile, NewerFormat, RlseqError, UsageError
from rlseq.player import onnx_file
from rlseq.player.onnx_file import MESSAGES, OnnxFile, newer_runtime_needed, read_onnx_file
from rlseq.player.onnx_policy import load_onnx
from rlseq.spec import FORMAT_KEY, SPEC_FORMAT, SPEC_KEY, StepInput
from tests import graphs

WEIGHTS = np.arange(8.0).reshape(4, 2) / 8 - 0.3


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return graphs.save_linear(tmp_path / "policy.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS)


def changed(path: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load_from_string(path.read_bytes())
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def test_reads_versions_and_metadata(policy: Path) -> None:
    file = read_onnx_file(policy)
    assert (file.ir_version, file.opset) == (graphs.IR, graphs.OPSET)
    model = onnx.load_from_string(policy.read_bytes())
    assert file.metadata == {entry.key: entry.value for entry in model.metadata_props}
    assert file.data == policy.read_bytes()


def test_every_way_to_a_tensor_is_known() -> None:
    """The hand-written table against the onnx package's own descriptors."""
    found: dict[str, dict[int, str]] = {}
    reaches: dict[str, bool] = {}

    def leads_to_tensor(descriptor: object, seen: tuple[str, ...] = ()) -> bool:
        name = descriptor.name  # type: ignore[attr-defined]
        if name == "TensorProto":
            return True
        if name in seen:
            return False
        return any(
            field.message_type is not None and leads_to_tensor(field.message_type, (*seen, name))
            for field in descriptor.fields  # type: ignore[attr-defined]
        )

    def walk(descriptor: object) -> None:
        name = descriptor.name  # type: ignore[attr-defined]
        if name in reaches:
            return
        reaches[name] = leads_to_tensor(descriptor)
        for field in descriptor.fields:  # type: ignore[attr-defined]
            if field.message_type is not None:
                walk(field.message_type)
                if leads_to_tensor(field.message_type):
                    found.setdefault(name.removesuffix("Proto"), {})[field.number] = (
                        field.message_type.name.removesuffix("Proto")
                    )

    walk(onnx.ModelProto.DESCRIPTOR)
    tensors = {
        kind: {number: inner for number, inner in fields.items() if inner not in ("OperatorSetId", "StringStringEntry")}
        for kind, fields in MESSAGES.items()
    }
    assert found == {kind: fields for kind, fields in tensors.items() if fields}
    external = TensorProto.DESCRIPTOR.fields_by_name
    assert (external["external_data"].number, external["data_location"].number) == onnx_file.EXTERNAL_FIELDS


def external(name: str = "secret") -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../../../etc/passwd")
    return tensor


def constant(**attributes: object) -> onnx.NodeProto:
    node = helper.make_node("Constant", [], ["unused"])
    for name, value in attributes.items():
        node.attribute.append(helper.make_attribute(name, value))
    return node


def in_if(*nodes: onnx.NodeProto, depth: int = 1) -> onnx.NodeProto:
    """An If with the nodes in its else branch, `depth` times nested."""
    graph = helper.make_graph(
        list(nodes), "branch", [], [helper.make_tensor_value_info("unused", TensorProto.FLOAT, [2])]
    )
    plain = helper.make_graph([constant(value_floats=[1.0, 2.0])], "other", [], graph.output)
    node = helper.make_node("If", ["condition"], ["unused"], then_branch=plain, else_branch=graph)
    return node if depth == 1 else in_if(node, depth=depth - 1)


def sparse(values: TensorProto, indices: TensorProto) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=values, indices=indices, dims=[4])


def function(node: onnx.NodeProto) -> onnx.FunctionProto:
    return helper.make_function("own", "F", [], ["unused"], [node], [helper.make_opsetid("", 18)])


INDICES = numpy_helper.from_array(np.array([0, 1]), "indices")
INSIDE = numpy_helper.from_array(np.zeros(2, np.float32), "inside")
EXTERNAL: dict[str, Callable[[onnx.ModelProto], None]] = {
    "initializer": lambda m: m.graph.initializer.append(external()),
    "location only": lambda m: m.graph.initializer.add(name="secret", data_location=TensorProto.EXTERNAL) and None,
    "entry only": lambda m: (
        m.graph.initializer.add(name="secret").external_data.add(key="location", value="x") and None
    ),
    "sparse values": lambda m: m.graph.sparse_initializer.append(sparse(external(), INDICES)),
    "sparse indices": lambda m: m.graph.sparse_initializer.append(sparse(INSIDE, external())),
    "Constant": lambda m: m.graph.node.append(constant(value=external())),
    "Constant, sparse": lambda m: m.graph.node.append(constant(sparse_value=sparse(external(), INDICES))),
    "list of tensors": lambda m: m.graph.node.append(constant(values=[INSIDE, external()])),
    "Constant in an If": lambda m: m.graph.node.append(in_if(constant(value=external()))),
    "Constant in an If in an If": lambda m: m.graph.node.append(in_if(constant(value=external()), depth=3)),
    "function": lambda m: m.functions.append(function(constant(value=external()))),
    "function's If": lambda m: m.functions.append(function(in_if(constant(value=external())))),
    "function's default": lambda m: m.functions.add().attribute_proto.append(helper.make_attribute("a", external())),
    "training": lambda m: m.training_info.add().initialization.initializer.append(external()),
    "training algorithm": lambda m: m.training_info.add().algorithm.node.append(constant(value=external())),
}


@pytest.mark.parametrize("place", EXTERNAL)
def test_external_data_is_refused_unopened(place: str, policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(policy, EXTERNAL[place])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *a, **k: pytest.fail("ONNX Runtime saw the file"))
    with pytest.raises(CorruptFile, match=r"policy.onnx is refused: its tensor '\w*' lies in another file"):
        load_onnx(policy)


def test_external_location_hidden_by_a_second_value(policy: Path) -> None:
    """protobuf keeps the last of two values of a field, and merges two messages of one: neither hides the first."""
    tensor = external().SerializeToString() + b"\x70\x00"  # data_location = 0 after data_location = 1
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    policy.write_bytes(policy.read_bytes() + b"\x3a" + bytes([len(graph)]) + graph)
    with pytest.raises(CorruptFile, match="lies in another file"):
        read_onnx_file(policy)


def test_default_location_written_out_is_no_external_data(policy: Path) -> None:
    def spell_out(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            tensor.data_location = TensorProto.DEFAULT

    assert load_onnx(changed(policy, spell_out)).spec.env.id == "CartPole-v1"


def test_bytes_are_read_as_the_format_that_was_checked(policy: Path) -> None:
    """`ORTM` at byte 4 makes ONNX Runtime guess another format, in which nothing has been checked."""
    policy.write_bytes(b"\x32\x08..ORTM.." + policy.read_bytes())  # a doc_string in front
    assert policy.read_bytes()[4:8] == b"ORTM"
    with pytest.raises(Exception, match="ORT model"):
        onnxruntime.InferenceSession(policy.read_bytes(), providers=["CPUExecutionProvider"])
    assert load_onnx(policy)(np.array([0, 0, 0, 1], np.float32)) == 1


def test_warnings_of_the_runtime_do_not_reach_the_terminal(policy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    changed(policy, lambda model: model.graph.initializer.append(INSIDE))  # used by no node
    onnxruntime.InferenceSession(policy.read_bytes(), providers=["CPUExecutionProvider"])
    assert "not used by any node" in capfd.readouterr().err
    load_onnx(policy)
    assert capfd.readouterr() == ("", "")


def test_options_inside_the_file_are_not_obeyed(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_config(model: onnx.ModelProto) -> None:
        model.metadata_props.add(key="ort_config", value='{"session_options": {"intra_op_num_threads": 7}}')

    changed(policy, add_config)
    assert load_onnx(policy)(np.array([0, 0, 0, 1], np.float32)) == 1
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")  # even then ONNX Runtime gives up rather than obey
    with pytest.raises(CorruptFile, match="is refused by ONNX Runtime"):
        load_onnx(policy)


def test_operators_of_a_library_are_refused(policy: Path) -> None:
    def use_library(model: onnx.ModelProto) -> None:
        model.graph.node.append(helper.make_node("Shell", ["obs"], ["unused"], domain="evil.ops"))
        model.opset_import.append(helper.make_opsetid("evil.ops", 1))

    with pytest.raises(CorruptFile, match=r"its operator Shell of the domain 'evil\.ops' needs a library"):
        read_onnx_file(changed(policy, use_library))


def test_functions_of_the_file_itself_are_allowed(policy: Path) -> None:
    def define(model: onnx.ModelProto) -> None:
        model.functions.append(function(constant(value_floats=[1.0, 2.0])))
        model.graph.node.append(helper.make_node("F", [], ["unused"], domain="own"))
        model.opset_import.append(helper.make_opsetid("own", 1))

    assert load_onnx(changed(policy, define))(np.array([0, 0, 0, 1], np.float32)) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        b"PK\x03\x04" + bytes(100),
        b"\x89HDF\r\n\x1a\n" + bytes(64),
        b"<!DOCTYPE html><html></html>",
        b"{}",
        bytes(1000),
        b"\xff" * 1000,
        b"\x08\x08",  # an IR version and nothing else
        b"\x3a\x00",  # an empty graph and nothing else
        b"\x08\x08\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",  # a graph of 2**63 bytes
        b"\x0b" * 50,  # groups, which ONNX has not
        b"\x08" + b"\x80" * 11 + b"\x00",  # an endless number
    ],
)
def test_no_onnx_file(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"x\.onnx is not an ONNX file"):
        load_onnx(path)


def test_a_git_lfs_pointer_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(CorruptFile, match="git lfs pull"):
        load_onnx(tmp_path / "x.onnx")


def test_deep_nesting_is_refused(policy: Path) -> None:
    def field(number: int, content: bytes) -> bytes:
        size = len(content)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        return bytes([number << 3 | 2]) + length + content

    graph = b""
    for _ in range(200):
        graph = field(1, field(5, field(6, graph)))  # a graph's node's attribute's graph
    policy.write_bytes(policy.read_bytes() + field(7, graph))
    with pytest.raises(CorruptFile, match="out of place"):
        read_onnx_file(policy)


def test_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(RlseqError, match=r"cannot read .*missing\.onnx: No such file"):
        load_onnx(tmp_path / "missing.onnx")
    with pytest.raises(UsageError, match="is not a file"):
        load_onnx(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.onnx")  # opening it would wait for ever
        with pytest.raises(UsageError, match="is not a file"):
            load_onnx(tmp_path / "pipe.onnx")


def test_more_than_two_gibibytes(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    with open(path, "wb") as file:
        file.truncate(2**31)  # sparse: takes no disk
    with pytest.raises(RlseqError, match=r"has 2\.0 GiB; an ONNX file has at most 2"):
        load_onnx(path)


@pytest.mark.parametrize(
    ("opset", "ir", "installed", "needed"),
    [
        (18, 8, "1.20.0", None),
        (21, 10, "1.20.1", None),
        (22, 10, "1.20.1", ">= 1.32"),
        (21, 11, "1.24.0", ">= 1.32"),
        (28, 14, "1.32.0", None),
        (29, 14, "1.32.0", "newer than 1.32.0"),
        (29, 14, "1.20.0", "newer than 1.32"),
        (18, 99, "1.40.0", "newer than 1.40.0"),
    ],
)
def test_which_runtime_a_file_needs(opset: int, ir: int, installed: str, needed: str | None) -> None:
    assert newer_runtime_needed(OnnxFile(Path("x"), b"", ir, opset, {}), installed) == needed


@pytest.mark.parametrize(("opset", "ir"), [(18, 99), (99, 8)])
def test_a_file_too_new_for_the_runtime_says_what_to_install(opset: int, ir: int, tmp_path: Path) -> None:
    spec = graphs.spec_of("CartPole-v1")
    path = graphs.save_linear(tmp_path / "new.onnx", spec, WEIGHTS, opset=opset, ir=ir)
    with pytest.raises(RlseqError, match=r"needs onnxruntime newer than .* pip install --upgrade"):
        load_onnx(path)


def test_newer_format(tmp_path: Path) -> None:
    spec = graphs.spec_of("CartPole-v1")
    newer = graphs.rlseq_metadata(spec) | {FORMAT_KEY: str(SPEC_FORMAT + 1)}
    path = graphs.save_linear(tmp_path / "p.onnx", spec, WEIGHTS, metadata=newer)
    with pytest.raises(NewerFormat, match=f"format_version {SPEC_FORMAT + 1}; this rlseq reads up to {SPEC_FORMAT}"):
        load_onnx(path)
    only_spec = graphs.rlseq_metadata(spec)
    del only_spec[FORMAT_KEY]
    for metadata in (only_spec, {FORMAT_KEY: "1"}, graphs.rlseq_metadata(spec) | {FORMAT_KEY: "one"}):
        graphs.save_linear(path, spec, WEIGHTS, metadata=metadata)
        with pytest.raises(CorruptFile, match="incomplete rlseq metadata"):
            load_onnx(path)
    graphs.save_linear(path, spec, WEIGHTS, metadata={FORMAT_KEY: "1", SPEC_KEY: "{"})
    with pytest.raises(CorruptFile, match="damaged policy description"):
        load_onnx(path)


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes flipped, cut out, doubled or cut off at the end."""
    bytes_ = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        at, size = int(rng.integers(len(bytes_))), int(rng.integers(1, 9))
        kind = rng.integers(5)
        if kind == 0:
            bytes_[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            bytes_[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == 2 and len(bytes_) > 2 * size:
            del bytes_[at : at + size]
        elif kind == 3:
            bytes_[at:at] = bytes_[at : at + size]
        elif rng.integers(4) == 0:
            del bytes_[max(1, at) :]
    return bytes(bytes_)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_refused_or_play(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing but an `RlseqError` comes out of a damaged file, and nothing is printed."""
    spec = graphs.spec_of("CartPole-v1")
    good = graphs.save_linear(tmp_path / "good.onnx", spec, WEIGHTS).read_bytes()
    bad = tmp_path / "bad.onnx"
    rng = np.random.default_rng(seed)
    step = StepInput((np.zeros((2, 4), np.float32),), np.zeros(2, np.float32), np.ones(2, np.bool_))
    refused = 0
    for _ in range(150):
        bad.write_bytes(mutated(good, rng))
        try:
            policy = load_onnx(bad)
            policy.act(step, policy.initial_state(2))
        except RlseqError:
            refused += 1
    assert refused > 50
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("part", ["head", "spec"])
def test_every_truncation_is_refused(part: str, tmp_path: Path) -> None:
    good = graphs.save_linear(tmp_path / "good.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS).read_bytes()
    bad = tmp_path / "bad.onnx"
    sizes = range(0, 200) if part == "head" else range(len(good) - 200, len(good))
    for size in sizes:
        bad.write_bytes(good[:size])
        with pytest.raises(RlseqError):
            load_onnx(bad)
