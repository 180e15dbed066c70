"""Exported sequence models as a runtime sees them (cases X1-X3, X5-X7, T10)."""

from __future__ import annotations

import getpass
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from rlseq.errors import ParityError, RlseqError, UsageError
from rlseq.exporter import sequence as exporting
from rlseq.exporter.sequence import build_sequence_graph, export_sequence
from rlseq.nets.stepper import TorchSequence
from rlseq.player.generate import generate
from rlseq.player.sampling import GREEDY
from rlseq.player.sequence import load_sequence
from rlseq.sequence import SEQUENCE_KEY, decode_sequence_spec
from tests.sequences import CONTEXT, CORES, WINDOW, assert_close, checked_ports, small_network, spec_of


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each core, exported twice over what an older export left."""
    place = tmp_path_factory.mktemp("export")
    paths = {core: place / core / "model.onnx" for core in CORES}
    for core, path in paths.items():
        net = small_network(core)
        path.parent.mkdir()
        path.write_bytes(b"stale")
        report = export_sequence(net, spec_of(net, core), path)
        assert report["greedy_tokens_equal"] == 64 and report["max_error"] < 1e-3
    return paths


@pytest.fixture(params=CORES)
def core(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def network(core: str) -> TorchSequence:
    net = small_network(core)
    return TorchSequence(net, spec_of(net, core))


def tokens_of(batch: int, time: int) -> np.ndarray:
    return np.random.default_rng(batch * 100 + time).integers(0, 11, (batch, time))


@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("time", [1, 5, 17])
def test_any_number_of_sequences_of_any_length(files: dict[str, Path], core: str, batch: int, time: int) -> None:
    """X2: exported with 2 sequences of 5 tokens."""
    model, tokens_BT = load_sequence(files[core]), tokens_of(batch, time)
    logits_BTV, _ = model.step(tokens_BT, model.initial_state(batch))
    assert_close(logits_BTV, network(core).whole(tokens_BT))


@pytest.mark.parametrize(
    "pieces",
    [
        [1] * 40,
        [7] + [1] * 33,
        [25] + [1] * 15,
        [WINDOW - 1, 1, 1, 20, 1, 6],
        [CONTEXT - 1, 1, 1, 1, CONTEXT, 6],
    ],
)
def test_cached_equals_uncached_past_the_window(files: dict[str, Path], core: str, pieces: list[int]) -> None:
    """T10, against the network that has no cache."""
    model, tokens_BT = load_sequence(files[core]), tokens_of(3, sum(pieces))
    state, start, found = model.initial_state(3), 0, []
    for length in pieces:
        logits_BTV, state = model.step(tokens_BT[:, start : start + length], state)
        found.append(logits_BTV)
        start += length
    assert_close(np.concatenate(found, 1), network(core).whole(tokens_BT))


def test_greedy_text_is_the_uncached_networks(files: dict[str, Path], core: str) -> None:
    prompt, sequence = np.array([3, 1, 4]), network(core)
    made = list(generate(load_sequence(files[core]), prompt, 40, GREEDY, np.random.default_rng(0)))
    tokens = prompt.tolist()
    for _ in range(40):
        tokens.append(int(sequence.whole(np.array([tokens]))[0, -1].argmax()))
    assert made == tokens[3:]


def test_the_state_goes_in_and_out_and_none_is_kept_inside(files: dict[str, Path], core: str) -> None:
    """X3: every state input is used, no recurrent node begins with a constant, and no state of zeros is made inside."""
    model = onnx.load(files[core])
    names = {leaf.name for leaf in small_network(core).state_leaves}
    assert {port.name for port in model.graph.input} == {"tokens"} | names
    made_by = {output: node for node in model.graph.node for output in node.output}

    def sources(name: str) -> set[str]:
        node = made_by.get(name)
        return {name} if node is None else set().union(*(sources(n) for n in node.input if n))

    recurrent = [node for node in model.graph.node if node.op_type in ("LSTM", "GRU")]
    assert len(recurrent) == (0 if core == "gpt" else 2)
    for node in recurrent:
        assert "h" in sources(node.input[5])
        assert node.op_type == "GRU" or "c" in sources(node.input[6])
    for name in names:
        assert any(name in node.input for node in model.graph.node), name


def test_another_state_gives_other_logits(files: dict[str, Path], core: str) -> None:
    model, tokens_BT = load_sequence(files[core]), tokens_of(2, 4)
    fresh, _ = model.step(tokens_BT, model.initial_state(2))
    state = model.initial_state(2)
    for _ in range(2):
        _, state = model.step(tokens_of(2, 3), state)
    later, _ = model.step(tokens_BT, state)
    assert np.abs(later - fresh).max() > 1e-2
    for number in range(len(state)):
        if model.spec.state[number].name != "position":
            changed = [array + 0.5 if n == number else array for n, array in enumerate(state)]
            assert np.abs(model.step(tokens_BT, tuple(changed))[0] - later).max() > 1e-4, model.spec.state[number].name


def test_it_is_one_file_that_generates_elsewhere(files: dict[str, Path], core: str, tmp_path: Path) -> None:
    """X1; nothing of the older file is left either."""
    assert [path.name for path in files[core].parent.iterdir()] == ["model.onnx"]
    copy = shutil.copy(files[core], tmp_path / "alone.onnx")
    assert load_sequence(copy).step(tokens_of(1, 2), load_sequence(copy).initial_state(1))[0].shape == (1, 2, 11)


def test_opset_ir_and_axes_as_read_back(files: dict[str, Path], core: str) -> None:
    """X5."""
    shapes = checked_ports(files[core])
    assert shapes["tokens"] == ["batch", "time"] and shapes["logits"] == ["batch", "time", 11]
    if core == "gpt":
        assert shapes["k1"] == ["batch", 4, "past", 8] and shapes["v0_out"] == ["batch", 4, "next_past", 8]
        assert shapes["position"] == shapes["position_out"] == []
    else:
        assert shapes["h"] == shapes["h_out"] == [2, "batch", 32]


def test_it_holds_no_path_user_name_or_source_line(files: dict[str, Path], core: str) -> None:
    """X6."""
    data = files[core].read_bytes()
    forbidden = [os.getcwd(), str(Path.home()), str(Path(torch.__file__).parent), ".py", "Traceback", "File ", "torch"]
    if len(getpass.getuser()) > 3:
        forbidden.append(getpass.getuser())
    for text in forbidden:
        assert text.encode() not in data, text


def test_the_description_travels_inside(files: dict[str, Path], core: str) -> None:
    """X7."""
    props = {entry.key: entry.value for entry in onnx.load(files[core]).metadata_props}
    assert props.keys() == {SEQUENCE_KEY}
    spec = decode_sequence_spec(props[SEQUENCE_KEY], "file")
    wanted = network(core).spec
    for name in ("task", "model", "vocabulary", "context", "window", "tokenizer", "state", "lineage", "scores"):
        assert getattr(spec, name) == getattr(wanted, name), name
    assert spec.window == (WINDOW if core == "gpt" else None)
    assert spec.parity["greedy_tokens"] == 64 and len(spec.weights_sha256) == 64
    assert load_sequence(files[core]).spec == spec


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_recurrent_network_is_exported_again_in_the_same_process(files: dict[str, Path], kind: str) -> None:
    """torch keeps what it looked up for the first export, and would fix the length of the second's sequences."""
    net = small_network(kind)
    model = build_sequence_graph(net, spec_of(net, kind))
    assert [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", "time"]


@pytest.mark.parametrize("opset", [17, 22])
def test_other_opsets_are_refused(opset: int, tmp_path: Path) -> None:
    net = small_network("gru")
    with pytest.raises(UsageError, match="18 to 21"):
        export_sequence(net, spec_of(net, "gru"), tmp_path / "model.onnx", opset)
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------------- no half file


@pytest.fixture
def ready(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """The graph of the gpt, which an export then takes instead of tracing it."""
    model = onnx.load(files["gpt"])
    monkeypatch.setattr(exporting, "build_sequence_graph", lambda *_: model)
    return model


def damage(model: onnx.ModelProto) -> None:
    """Change the largest matrix of the graph."""
    tensor = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    values = onnx.numpy_helper.to_array(tensor).copy()
    values.flat[0] += 3.0
    tensor.raw_data = values.tobytes()


def test_a_graph_that_is_not_the_network_leaves_the_older_file(ready: onnx.ModelProto, tmp_path: Path) -> None:
    net = small_network("gpt")
    path = tmp_path / "model.onnx"
    path.write_bytes(b"older")
    damage(ready)
    with pytest.raises(ParityError, match="differ by up to"):
        export_sequence(net, spec_of(net, "gpt"), path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model.onnx", b"older")]


def test_diverged_weights_are_named_as_such(ready: onnx.ModelProto, tmp_path: Path) -> None:
    net = small_network("gpt")
    with torch.no_grad():
        net.embedding.weight[:] = torch.nan
    with pytest.raises(RlseqError, match="NaN"):
        export_sequence(net, spec_of(net, "gpt"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_later_success_takes_the_place_and_sweeps_what_a_killed_one_left(
    ready: onnx.ModelProto, tmp_path: Path
) -> None:
    net = small_network("gpt")
    path = tmp_path / "new" / "model.onnx"
    path.parent.mkdir()
    (path.parent / ".model.4194999.candidate.onnx").write_bytes(b"left")
    export_sequence(net, spec_of(net, "gpt"), path)
    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]
    assert load_sequence(path).spec.parity["batch_sizes"] == [1, 3]
