"""The exported file as a runtime sees it."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from rlseq.errors import RlseqError, UsageError
from rlseq.exporter.export import build_graph, with_spec
from rlseq.exporter.graph import cleaned, write_graph
from rlseq.nets.config import NetOptions
from rlseq.nets.network import NetInput, QNetwork, seeded
from rlseq.spec import FORMAT_KEY, SPEC_KEY, ActionSpec, EnvSpec, Leaf, PolicySpec, decode_spec

LEAVES = (
    Leaf(name="obs.a", path=("a",), shape=(4,)),
    Leaf(name="obs.b", path=("b",), kind="discrete", dtype="int64", sizes=(5,), starts=(2,)),
    Leaf(name="obs.c", path=("c",), dtype="uint8", shape=(3, 3), scale=1 / 255),
    Leaf(name="obs.d", path=("d",), kind="multi_discrete", dtype="int64", shape=(2,), sizes=(3, 4), starts=(0, 1)),
    Leaf(name="obs.e", path=("e",), kind="multi_binary", dtype="int8", shape=(3,)),
)
SPEC = PolicySpec(env=EnvSpec(id="any"), observation=LEAVES, action=ActionSpec(n=3, start=2))


def observations(batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    return {
        "obs.a": rng.normal(size=(batch, 4)).astype(np.float32),
        "obs.b": rng.integers(2, 7, batch),
        "obs.c": rng.integers(0, 256, (batch, 3, 3)).astype(np.uint8),
        "obs.d": rng.integers([0, 1], [3, 5], (batch, 2)),
        "obs.e": rng.integers(0, 2, (batch, 3)).astype(np.int8),
    }


def network() -> QNetwork:
    return seeded(0, lambda: QNetwork(LEAVES, 3, NetOptions(hidden=(16,)))).eval()  # type: ignore[return-value]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "policy.onnx"
    write_graph(with_spec(build_graph(network(), SPEC), SPEC), path)
    return path


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_raw_observations_of_every_kind_go_in_at_any_batch_size(file: Path, batch: int) -> None:
    feed = observations(batch)
    action, q = ort.InferenceSession(file.read_bytes()).run(None, feed)
    with torch.no_grad():
        expected = network()(NetInput(tuple(map(torch.from_numpy, feed.values()))))[0].numpy()
    np.testing.assert_allclose(q, expected, atol=1e-6)
    np.testing.assert_array_equal(action, expected.argmax(axis=1) + 2)
    assert (q.dtype, action.dtype) == (np.float32, np.int64)


def test_names_shapes_and_types(file: Path) -> None:
    session = ort.InferenceSession(file.read_bytes())
    assert [(i.name, i.shape) for i in session.get_inputs()] == [
        ("obs.a", ["batch", 4]),
        ("obs.b", ["batch"]),
        ("obs.c", ["batch", 3, 3]),
        ("obs.d", ["batch", 2]),
        ("obs.e", ["batch", 3]),
    ]
    assert [(o.name, o.shape) for o in session.get_outputs()] == [("action", ["batch"]), ("q_values", ["batch", 3])]


@pytest.mark.parametrize("opset", [18, 19, 20, 21])
def test_opset_and_ir_as_read_back(tmp_path: Path, opset: int) -> None:
    path = tmp_path / "p.onnx"
    write_graph(with_spec(build_graph(network(), SPEC, opset), SPEC), path)
    model = onnx.load(path)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
    assert model.ir_version <= 10


@pytest.mark.parametrize("opset", [17, 22])
def test_other_opsets_are_refused(opset: int) -> None:
    with pytest.raises(UsageError, match="18 to 21"):
        build_graph(network(), SPEC, opset)


def test_it_is_one_file_and_plays_alone(file: Path, tmp_path: Path) -> None:
    assert [path.name for path in file.parent.iterdir()] == ["policy.onnx"]
    copy = tmp_path / "elsewhere.onnx"
    copy.write_bytes(file.read_bytes())
    assert ort.InferenceSession(str(copy)).run(None, observations(2))[0].shape == (2,)


def test_it_holds_no_path_user_name_or_source_line(file: Path) -> None:
    data = file.read_bytes()
    forbidden = [
        os.getcwd(),
        str(Path.home()),
        str(Path(torch.__file__).parent),
        ".py",
        "Traceback",
        "File ",
        "site-packages",
    ]
    if len(getpass.getuser()) > 3:
        forbidden.append(getpass.getuser())
    for text in forbidden:
        assert text.encode() not in data, text
    model = onnx.load(file)
    assert all(not node.doc_string and not node.metadata_props for node in model.graph.node)
    assert {entry.key for entry in model.metadata_props} == {FORMAT_KEY, SPEC_KEY}


def test_cleaning_strips_traces_at_any_depth() -> None:
    inner = onnx.helper.make_node("Identity", ["x"], ["y"], doc_string="/home/me/secret.py")
    body = onnx.helper.make_graph([inner], "body", [], [], doc_string="secret")
    outer = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body, doc_string="secret")
    onnx.helper.set_model_props(
        model := onnx.helper.make_model(onnx.helper.make_graph([outer], "g", [], [])), {"a": "secret"}
    )
    assert b"secret" in model.SerializeToString()
    clean = cleaned(model)
    assert b"secret" not in clean.SerializeToString()
    assert clean.graph.node[0].attribute[0].g.node[0].op_type == "Identity"


def test_the_description_travels_inside(file: Path) -> None:
    props = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    assert decode_spec(props[SPEC_KEY], "file") == SPEC


def test_external_data_would_not_be_written(tmp_path: Path) -> None:
    model = with_spec(build_graph(network(), SPEC), SPEC)
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    with pytest.raises(RlseqError, match="one file"):
        write_graph(model, tmp_path / "p.onnx")
    assert not list(tmp_path.iterdir())


def test_an_export_that_torch_cannot_do_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("no translation for aten::nonsense")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(RlseqError, match="aten::nonsense"):
        build_graph(network(), SPEC)


def test_argmax_of_negative_values_and_ties() -> None:
    """X9: with all values negative the largest wins; equal values give the lowest index."""
    net = QNetwork((Leaf(name="obs", shape=(1,)),), 4, NetOptions(hidden=()))
    spec = PolicySpec(env=EnvSpec(id="any"), observation=(Leaf(name="obs", shape=(1,)),), action=ActionSpec(n=4))
    with torch.no_grad():
        net.head.weight.zero_()
        net.head.bias.copy_(torch.tensor([-9.0, -2.0, -3.0, -2.0]))
    model = build_graph(net, spec)
    action, q = ort.InferenceSession(model.SerializeToString()).run(None, {"obs": np.zeros((5, 1), np.float32)})
    np.testing.assert_array_equal(action, [1] * 5)
    np.testing.assert_array_equal(q[0], [-9, -2, -3, -2])


@pytest.mark.parametrize("operator", [torch.ops.aten.lstm.input, torch.ops.aten.gru.input])
def test_kernels_looked_up_before_are_forgotten(monkeypatch: pytest.MonkeyPatch, operator: Any) -> None:
    """torch 2.13 would take them instead of those that it lends a recurrent layer for the export."""
    seen = []

    def export(*_: object, **__: object) -> None:
        seen.append(dict(operator._dispatch_cache))
        operator._dispatch_cache["lent"] = None
        raise ValueError("far enough")

    operator._dispatch_cache["stale"] = None
    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(RlseqError, match="far enough"):
        build_graph(network(), SPEC)
    assert seen == [{}] and operator._dispatch_cache == {}
