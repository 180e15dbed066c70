"""Exported models that translate, classify and forecast, as a runtime sees them (cases T7, T8, X1-X5, X7, X8)."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import nn

from rlseq.evaluation import evaluate
from rlseq.exporter.sequence import export_sequence
from rlseq.nets.build import sequence_network
from rlseq.nets.stepper import TorchSequence
from rlseq.player.answering import answer
from rlseq.player.sequence import OnnxSequence, load_sequence
from rlseq.sequence import SEQUENCE_KEY, decode_sequence_spec
from rlseq.trained_sequence import score_sequence
from tests.sequence_kinds import ONE_PASS, OPTIONS, SERIES, small_model
from tests.sequences import assert_close, checked_ports

TRANSLATES = "reverse-transformer"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind."""
    place = tmp_path_factory.mktemp("kinds")
    paths = {name: place / name / "model.onnx" for name in OPTIONS}
    for name, path in paths.items():
        report = export_sequence(small_model(name).net, small_model(name).spec, path)
        assert report["batch_sizes"] == [1, 3] and report["lengths"] == [1, 5, 17]
        assert report["max_error"] < 1e-4 and report["seed"] == 2_000_000
        assert ("stepwise_tokens" in report) == (name not in ONE_PASS)
        assert ("padded_rows" in report) == (name in (*ONE_PASS, TRANSLATES))
        assert report.get("greedy_tokens_equal") == (64 if name == TRANSLATES else None)
    return paths


def network(name: str) -> TorchSequence:
    return TorchSequence(small_model(name).net, small_model(name).spec)


def values_of(name: str, batch: int, time: int) -> np.ndarray:
    signature = small_model(name).task.signature
    rng, shape = np.random.default_rng(batch * 100 + time), (batch, time, len(signature.features))
    return rng.normal(signature.shift, signature.scale, shape).astype(np.float32)


def tokens_of(batch: int, time: int) -> np.ndarray:
    return np.random.default_rng(batch * 100 + time).integers(0, 6, (batch, time))


def padding(batch: int, time: int) -> np.ndarray:
    """The first row is all padding, those after it less and less."""
    return np.arange(time) < np.arange(batch)[:, None]


# --------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("batch", [1, 2, 7, 64])
@pytest.mark.parametrize("time", [1, 5, 17])
def test_any_number_of_series_of_any_length(files: dict[str, Path], name: str, batch: int, time: int) -> None:
    """X2: exported with 2 series of 5 places; T7: row 0 is all padding."""
    model, values_BTF, given_BT = load_sequence(files[name]), values_of(name, batch, time), padding(batch, time)
    assert_close(model.whole(values_BTF), network(name).whole(values_BTF))
    found = model.whole(values_BTF, given_BT)
    assert np.isfinite(found).all()
    values_BTF[~given_BT] = 0
    assert_close(found, network(name).whole(values_BTF, given_BT))


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
@pytest.mark.parametrize(("source", "time"), [(1, 5), (5, 1), (17, 9)])
def test_any_number_of_answers_to_sources_of_any_length(
    files: dict[str, Path], batch: int, source: int, time: int
) -> None:
    """X2, T7, and T10 of a cache that begins with a source."""
    model, tokens_BT, source_BS = load_sequence(files[TRANSLATES]), tokens_of(batch, time), tokens_of(batch, source)
    given_BS = padding(batch, source)
    expected = network(TRANSLATES).whole(tokens_BT, given_BS, source_BS)
    assert_close(model.whole(tokens_BT, given_BS, source_BS), expected)
    logits_BTV, state = model.step(tokens_BT[:, :1], model.initial_state(batch), source=source_BS, given=given_BS)
    found = [logits_BTV]
    for place in range(1, time):
        logits_BTV, state = model.step(tokens_BT[:, place : place + 1], state)
        found.append(logits_BTV)
    assert_close(np.concatenate(found, 1), expected)
    assert state[2].shape == (batch, 2, source, 8) and state[0].shape == (batch, 2, time, 8)


@pytest.mark.parametrize("name", ["mackey-glass-lstm", "waveforms-gpt"])
def test_a_series_may_be_read_on(files: dict[str, Path], name: str) -> None:
    """X3, past the window too."""
    model, values_BTF = load_sequence(files[name]), values_of(name, 3, 30)
    state, found = model.initial_state(3), []
    for piece in np.split(values_BTF, [1, 2, 10, 11, 25], axis=1):
        outputs, state = model.step(piece, state)
        found.append(outputs)
    assert_close(np.concatenate(found, 1), network(name).whole(values_BTF))


# ------------------------------------------------------------------------------------------------------------- padding


@pytest.mark.parametrize("name", [*ONE_PASS, TRANSLATES])
def test_the_graph_itself_does_not_read_padding(files: dict[str, Path], name: str) -> None:
    """T8, without the player before it, which would take padding away: longer or other padding changes nothing."""
    session = ort.InferenceSession(files[name], providers=["CPUExecutionProvider"])
    lengths_B = np.array([4, 1, 0])

    def run(longest: int, fill: float) -> np.ndarray:
        given = np.arange(longest) < lengths_B[:, None]
        if name == TRANSLATES:
            source = np.full((3, longest), int(fill))
            source[:, :4] = np.where(given[:, :4], tokens_of(3, 4), int(fill))
            state = {leaf.name: leaf.zeros(3) for leaf in small_model(name).spec.state}
            feed = {"tokens": tokens_of(3, 2), "source": source, "given": given, **state}
        else:
            values = np.full((3, longest, values_of(name, 3, 4).shape[2]), fill, np.float32)
            values[:, :4] = np.where(given[:, :4, None], values_of(name, 3, 4), np.float32(fill))
            feed = {"values": values, "given": given}
        return session.run(None, feed)[0]

    expected = run(4, 0)
    assert np.isfinite(expected).all()
    for longest, fill in [(4, 3), (9, 0), (9, 5), *([] if name == TRANSLATES else [(9, np.nan)])]:
        assert_close(run(longest, fill), expected)


# ------------------------------------------------------------------------------------------------------- what is inside


def test_state_is_input_and_output_and_all_of_it_matters(files: dict[str, Path]) -> None:
    """X3."""
    model = load_sequence(files[TRANSLATES])
    _, state = model.step(tokens_of(2, 3), model.initial_state(2), source=tokens_of(2, 5))
    later, _ = model.step(tokens_of(2, 1), state)
    for number, leaf in enumerate(model.spec.state):
        other = np.asarray(state[number][..., ::-1] + 1 if state[number].ndim else state[number] + 1)
        if leaf.name == "seen":
            other = np.arange(5) < np.array([[2], [5]])
        changed = tuple(other if n == number else array for n, array in enumerate(state))
        assert np.abs(model.step(tokens_of(2, 1), changed)[0] - later).max() > 1e-4, leaf.name


@pytest.mark.parametrize("name", ["lorenz-gru", "mackey-glass-lstm"])
def test_no_recurrent_layer_begins_with_a_constant_of_the_examples_size(files: dict[str, Path], name: str) -> None:
    """X3: its beginning follows the batch, or comes from outside."""
    model = onnx.load(files[name])
    constants = {tensor.name for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type in ("LSTM", "GRU")]
    assert len(nodes) == (2 if name == "lorenz-gru" else 1)
    for node in nodes:
        assert not constants & {state for state in node.input[5:7] if state}


def test_the_layers_are_those_of_torch(files: dict[str, Path]) -> None:
    """X4: they export although their fast path has no translation."""
    encoder = [m for m in small_model("waveforms-encoder").net.modules() if isinstance(m, nn.TransformerEncoder)]
    both = [m for m in small_model(TRANSLATES).net.modules() if isinstance(m, nn.Transformer)]
    assert len(encoder) == len(both) == 1
    operators = {node.op_type for node in onnx.load(files["waveforms-encoder"]).graph.node}
    assert {"Softmax", "MatMul"} <= operators and "IsNaN" not in operators


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        (
            TRANSLATES,
            {
                "tokens": ["batch", "time"],
                "source": ["batch", "source"],
                "given": ["batch", "source"],
                "k0": ["batch", 2, "past", 8],
                "source_v0": ["batch", 2, "read", 8],
                "seen": ["batch", "read"],
                "position": [],
                "logits": ["batch", "time", 8],
                "k0_out": ["batch", 2, "next_past", 8],
                "source_k0_out": ["batch", 2, "next_source", 8],
                "seen_out": ["batch", "next_source"],
            },
        ),
        (
            "waveforms-encoder",
            {"values": ["batch", "time", 1], "given": ["batch", "time"], "logits": ["batch", 1, 4]},
        ),
        ("lorenz-gru", {"values": ["batch", "time", 3], "given": ["batch", "time"], "forecast": ["batch", 1, 9]}),
        (
            "mackey-glass-lstm",
            {
                "values": ["batch", "time", 1],
                "h": [1, "batch", 16],
                "forecast": ["batch", "time", 4],
                "c_out": [1, "batch", 16],
            },
        ),
        (
            "waveforms-gpt",
            {"values": ["batch", "time", 1], "k0": ["batch", 2, "past", 8], "logits": ["batch", "time", 4]},
        ),
    ],
)
def test_opset_ir_and_axes_as_read_back(files: dict[str, Path], name: str, ports: dict[str, list[int | str]]) -> None:
    """X5."""
    found = checked_ports(files[name])
    assert {port: found[port] for port in ports} == ports
    if name in ONE_PASS:
        assert found.keys() == ports.keys()


def test_description_and_scaling_travel_inside_the_one_file(files: dict[str, Path], tmp_path: Path) -> None:
    """X1, X7."""
    for name, path in files.items():
        assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]
        copy = shutil.copy(path, tmp_path / "alone.onnx")
        props = {entry.key: entry.value for entry in onnx.load(copy).metadata_props}
        assert props.keys() == {SEQUENCE_KEY}
        spec, wanted = decode_sequence_spec(props[SEQUENCE_KEY], "file"), small_model(name).spec
        assert spec == msgspec.structs.replace(wanted, parity=spec.parity, weights_sha256=spec.weights_sha256)
        assert spec.signature == small_model(name).task.signature and load_sequence(copy).spec == spec


@pytest.mark.parametrize("name", ["lorenz-gru", "mackey-glass-lstm"])
def test_raw_values_go_in_and_forecasts_come_out_in_their_unit(files: dict[str, Path], name: str) -> None:
    """X8: against the same weights without any scaling, fed with what was scaled outside."""
    signature = small_model(name).task.signature
    shift, scale, target = np.array(signature.shift), np.array(signature.scale), signature.target
    assert np.abs(shift).max() > 0.3 and np.abs(scale - 1).max() > 0.3
    plain = msgspec.structs.replace(signature, shift=(0.0,) * len(shift), scale=(1.0,) * len(scale))
    net = sequence_network(plain, OPTIONS[name].net, 12)
    weights = {key: value for key, value in small_model(name).net.state_dict().items() if "reader.s" not in key}
    net.load_state_dict(weights, strict=False)
    values_BTF = values_of(name, 3, 6)
    scaled_BTF = ((values_BTF - shift) / scale).astype(np.float32)
    expected = TorchSequence(net, msgspec.structs.replace(small_model(name).spec, signature=plain)).whole(scaled_BTF)
    found = load_sequence(files[name]).whole(values_BTF)
    assert_close(found, expected * scale[target] + shift[target])


# -------------------------------------------------------------------------------------------------- what it is used for


def test_greedy_answers_are_the_networks(files: dict[str, Path]) -> None:
    """Of questions of many lengths, together and one by one; without a cache too."""
    rng, sequence = np.random.default_rng(3), network(TRANSLATES)
    questions = [rng.integers(0, 6, length) for length in (3, 1, 7, 3, 0, 12, 2)]
    model = load_sequence(files[TRANSLATES])
    answers = [made.tolist() for made in answer(model, questions, limit=10)]
    assert answers == [made.tolist() for made in answer(sequence, questions, limit=10)]
    assert answers == [answer(model, [question], limit=10)[0].tolist() for question in questions]
    signature = model.spec.signature
    for question, made in zip(questions, answers, strict=True):
        tokens = [signature.start]
        source, given = question[None], None
        if not len(question):
            source, given = np.array([[0]]), np.array([[False]])
        while len(tokens) <= 10 and tokens[-1] != signature.end:
            tokens.append(int(sequence.whole(np.array([tokens]), given, source)[0, -1].argmax()))
        assert made == [token for token in tokens[1:11] if token != signature.end]
    assert len({tuple(made) for made in answers}) > 2  # they depend on the question


@pytest.mark.parametrize("name", OPTIONS)
def test_a_file_is_scored_as_its_network(files: dict[str, Path], name: str) -> None:
    expected, _ = score_sequence(small_model(name).net, small_model(name).task, OPTIONS[name])
    found = evaluate(files[name])
    metrics = list(small_model(name).task.metrics)
    assert set(metrics) & found.keys() == set(metrics) & expected.keys() != set()
    for metric in {*metrics, "tokens"} & expected.keys():
        assert found[metric] == pytest.approx(expected[metric], rel=1e-5, abs=1e-6), metric
    assert found["data"] == small_model(name).task.description


def test_a_network_without_dropout_is_what_is_exported(files: dict[str, Path]) -> None:
    """T9, and that the network is in no other mode afterwards than before."""
    model = load_sequence(files["waveforms-encoder"])
    values_BTF = values_of("waveforms-encoder", 2, 5)
    assert isinstance(model, OnnxSequence)
    np.testing.assert_array_equal(model.whole(values_BTF), model.whole(values_BTF))
    assert {
        module.p for module in small_model("waveforms-encoder").net.modules() if isinstance(module, nn.Dropout)
    } == {0.1}
    assert torch.is_grad_enabled()
