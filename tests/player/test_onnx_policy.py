"""A policy in one .onnx file (cases X1-X3, X8-X10, and files of other tools)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rlseq.errors import CorruptFile, RlseqError, UsageError
from rlseq.player.onnx_policy import OnnxPolicy, load_onnx
from rlseq.spec import SPEC_KEY, Leaf, PolicySpec, StateLeaf, StepInput
from tests import graphs, toy_envs

WEIGHTS = np.array([[0.3, -0.1], [0.5, 0.2], [-0.7, 0.9], [0.1, -0.4]], np.float32)
TOY = sorted(set(toy_envs.ENVIRONMENTS) - {"toy/Raises-v0"})


def step_of(*obs: Any, first: Any = None) -> StepInput:
    rows = len(obs[0])
    return StepInput(obs, np.zeros(rows, np.float32), np.zeros(rows, np.bool_) if first is None else np.asarray(first))


def observations(spec: PolicySpec, rows: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Random leaves `[rows, ...]`."""
    rng = np.random.default_rng(seed)
    leaves = []
    for leaf in spec.observation:
        shape = (rows, *leaf.shape)
        if leaf.sizes:
            sizes, starts = (np.array(values).reshape(leaf.shape) for values in (leaf.sizes, leaf.starts))
            leaves.append(rng.integers(0, sizes, shape) + starts)
        elif leaf.dtype == "float32":
            leaves.append(rng.normal(size=shape).astype(np.float32))
        else:
            leaves.append(rng.integers(0, 2 if leaf.kind == "multi_binary" else 256, shape).astype(leaf.dtype))
    return tuple(leaves)


@pytest.fixture
def cartpole(tmp_path: Path) -> OnnxPolicy:
    return load_onnx(graphs.save_linear(tmp_path / "policy.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS))


@pytest.mark.parametrize("env_id", TOY)
@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_acts_as_its_numpy_twin_on_every_kind_of_observation(env_id: str, batch: int, tmp_path: Path) -> None:
    spec = graphs.spec_of(env_id)
    weights = np.random.default_rng(1).normal(size=(graphs.width_of(spec), spec.action.n)).astype(np.float32)
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, weights))
    obs = observations(spec, batch)
    expected = graphs.features(obs, spec) @ weights
    np.testing.assert_allclose(policy.q_values(obs), expected, rtol=1e-5, atol=1e-6)
    actions, state = policy.act(step_of(*obs), policy.initial_state(batch))
    assert actions.dtype == np.int64 and state == ()
    np.testing.assert_array_equal(actions, expected.argmax(1) + spec.action.start)


def test_plays_when_copied_alone_elsewhere(tmp_path: Path) -> None:
    spec = graphs.spec_of("CartPole-v1")
    graphs.save_linear(tmp_path / "policy.onnx", spec, WEIGHTS)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(tmp_path / "policy.onnx", tmp_path / "elsewhere" / "renamed.onnx")
    assert load_onnx(moved).spec == spec


@pytest.mark.parametrize("outputs", [("action", "q_values"), ("action",), ("q_values",)])
@pytest.mark.parametrize(
    ("values", "action"),
    [
        ([-3.0, -1.0, -2.0], 6),  # all negative
        ([-1.0, -1.0, -1.0], 5),  # ties: the lowest
        ([-2.0, -1.0, -1.0], 6),
        ([0.0, -0.0, 0.0], 5),
        ([-np.inf, -np.inf, -np.inf], 5),
        ([0.0, 1.0, np.inf], 7),
    ],
)
def test_argmax(values: list[float], action: int, outputs: tuple[str, ...], tmp_path: Path) -> None:
    spec = graphs.spec_of("toy/Started-v0", outputs=outputs)
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, np.zeros((3, 3)), values))
    assert policy(0) == action
    actions, _ = policy.act(step_of(np.array([0, 1])), ())
    assert actions.tolist() == [action, action] and actions.dtype == np.int64


def test_nan_values_are_refused(tmp_path: Path) -> None:
    spec = graphs.spec_of("toy/Started-v0", outputs=("q_values",))
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, np.zeros((3, 3)), [0.0, np.nan, 1.0]))
    with pytest.raises(RlseqError, match="q_values holds NaN"):
        policy(0)


def test_action_only_files_give_no_values(tmp_path: Path) -> None:
    spec = graphs.spec_of("CartPole-v1", outputs=("action",))
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, WEIGHTS))
    with pytest.raises(RlseqError, match="gives no action values: it has only the output action"):
        policy.q_values((np.zeros((1, 4), np.float32),))


@pytest.mark.parametrize(
    "given",
    [
        np.array([[1, 0, -1, 2], [0, 0, 0, 1]], np.float64),
        np.array([[1, 0, -1, 2], [0, 0, 0, 1]], np.int32),
        np.array([[1, 0, -1, 2], [0, 0, 0, 1]], np.float16),
        np.array([[1, 0, -1, 2], [0, 0, 0, 1]], ">f4"),
        np.asfortranarray(np.array([[1, 0, -1, 2], [0, 0, 0, 1]], np.float32)),
        np.array([[1, 9, 0, 9, -1, 9, 2], [0, 9, 0, 9, 0, 9, 1]], np.float32)[:, ::2],
        [[1, 0, -1, 2], [0, 0, 0, 1]],
        [(1.0, 0.0, -1.0, 2.0), (0, 0, 0, True)],
    ],
)
def test_observations_are_cast(given: Any, cartpole: OnnxPolicy) -> None:
    exact = np.array([[1, 0, -1, 2], [0, 0, 0, 1]], np.float32)
    expected = cartpole.q_values((exact,))
    np.testing.assert_array_equal(cartpole.q_values((given,)), expected)
    assert cartpole.act(step_of(given), ())[0].tolist() == expected.argmax(1).tolist()
    assert cartpole(given[0]) == expected[0].argmax()


def test_numbers_that_a_dtype_cannot_hold_are_refused(tmp_path: Path) -> None:
    spec = graphs.spec_of("toy/Image-v0")
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, np.ones((64, 2))))
    image = np.zeros((1, 8, 8))
    image[0, 0, 0] = 255
    assert policy.q_values((image,))[0].tolist() == [1.0, 1.0]  # divided by 255 once, in the graph
    for value in (256, -1, 0.5):
        image[0, 0, 0] = value
        with pytest.raises(
            RlseqError, match="obs holds values that uint8, the dtype of the policy's input, cannot hold"
        ):
            policy.act(step_of(image), ())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (np.zeros((2, 5), np.float32), r"\(2, 5\)"),
        (np.zeros(4, np.float32), r"\(4,\)"),
        (np.zeros((1, 2, 4), np.float32), r"\(1, 2, 4\)"),
        (np.float32(3), r"\(\)"),
        ([[1.0, 2.0]], r"\(1, 2\)"),
    ],
)
def test_a_wrong_shape_is_refused_with_both_shapes(given: Any, shown: str, cartpole: OnnxPolicy) -> None:
    with pytest.raises(RlseqError, match=rf"obs has shape {shown}; the policy takes \('batch', 4\)"):
        cartpole.act(StepInput((given,), np.zeros(1, np.float32), np.ones(1, np.bool_)), ())


def test_one_observation_of_a_wrong_shape(cartpole: OnnxPolicy) -> None:
    with pytest.raises(RlseqError, match=r"obs has shape \(3,\), the policy was trained on shape \(4,\)"):
        cartpole([1, 2, 3])
    with pytest.raises(RlseqError, match="rows differ in shape"):
        cartpole.act(StepInput(([[1, 2], [3]],), np.zeros(2, np.float32), np.ones(2, np.bool_)), ())


@pytest.mark.parametrize("rows", [2, 5_000])  # the small and the large check
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_is_refused_and_infinity_is_not(rows: int, dtype: Any, cartpole: OnnxPolicy) -> None:
    obs = np.zeros((rows, 4), dtype)
    obs[0, 0], obs[-1, 1] = np.inf, 3e38
    assert len(cartpole.act(step_of(obs), ())[0]) == rows
    obs[-1, 2] = np.nan
    with pytest.raises(RlseqError, match="obs holds NaN"):
        cartpole.act(step_of(obs), ())
    with pytest.raises(RlseqError, match="obs holds NaN"):
        cartpole(obs[-1])


def test_leaves_must_have_equal_rows(tmp_path: Path) -> None:
    spec = graphs.spec_of("toy/Dict-v0")
    policy = load_onnx(graphs.save_linear(tmp_path / "p.onnx", spec, np.zeros((graphs.width_of(spec), 2))))
    obs = list(observations(spec, 3))
    obs[-1] = obs[-1][:1]  # one row would be broadcast silently
    with pytest.raises(RlseqError, match=r"obs\.switches has 1 rows, obs\.deep\.pair\.0 has 3"):
        policy.act(step_of(*obs), ())
    with pytest.raises(RlseqError, match="takes 6 arrays of observations, 2 were given"):
        policy.act(step_of(*obs[:2]), ())
    with pytest.raises(RlseqError, match="the observation lacks 'deep'"):
        policy({"speed": [0, 0, 0]})


# ---------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("axis", [0, 1])
def test_state_has_one_row_an_environment(axis: int, tmp_path: Path) -> None:
    """Against a naive twin that sums each environment's features since its episode's start."""
    spec = graphs.spec_of("CartPole-v1")
    policy = load_onnx(graphs.save_recurrent(tmp_path / "p.onnx", spec, WEIGHTS, axis=axis))
    rng = np.random.default_rng(axis)
    sums = [np.zeros(4, np.float32) for _ in range(5)]
    state = policy.initial_state(5)
    assert state[0].shape == ((5, 4) if axis == 0 else (1, 5, 4))
    for step in range(60):
        obs = rng.normal(size=(5, 4)).astype(np.float32)
        first = rng.random(5) < 0.2 if step else np.ones(5, np.bool_)
        before = [value.copy() for value in state]
        actions, new = policy.act(step_of(obs, first=first), state)
        for i in range(5):
            sums[i] = obs[i] + (0 if first[i] else sums[i])
            assert actions[i] == (sums[i] @ WEIGHTS).argmax(), f"environment {i}, step {step}"
            np.testing.assert_allclose(np.moveaxis(new[0], axis, 0)[i].ravel(), sums[i], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(state[0], before[0])  # what was handed in is untouched
        state = new


def test_a_state_with_nan_is_cleared_at_an_episodes_start(tmp_path: Path) -> None:
    policy = load_onnx(graphs.save_recurrent(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS))
    broken = (np.full((2, 4), np.nan, np.float32),)
    _, (state,) = policy.act(step_of(np.ones((2, 4), np.float32), first=[True, False]), broken)
    assert np.isfinite(state[0]).all() and np.isnan(state[1]).all()


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_recurrent_batches(batch: int, tmp_path: Path) -> None:
    policy = load_onnx(graphs.save_recurrent(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS, axis=1))
    obs = np.ones((batch, 4), np.float32)
    actions, state = policy.act(step_of(obs), policy.initial_state(batch))
    assert actions.shape == (batch,) and state[0].shape == (1, batch, 4)
    np.testing.assert_allclose(policy.q_values((obs,), state), np.full((batch, 4), 2) @ WEIGHTS, rtol=1e-6)


def test_wrong_states_are_refused(tmp_path: Path) -> None:
    policy = load_onnx(graphs.save_recurrent(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS))
    step = step_of(np.ones((2, 4), np.float32))
    with pytest.raises(
        RlseqError, match=r"carries 1 state arrays, 0 were given: start with policy\.initial_state\(2\)"
    ):
        policy.act(step, ())
    with pytest.raises(RlseqError, match=r"the state h has shape \(1, 4\), the policy takes \(2, 4\)"):
        policy.act(step, policy.initial_state(1))  # would be broadcast
    with pytest.raises(RlseqError, match="is a recurrent policy, its memory must be carried on"):
        policy(np.zeros(4))


# ------------------------------------------------------------------------------------------------ description and graph


def with_spec(path: Path, **changes: Any) -> Path:
    """The file with another description, whatever its graph has."""
    model = onnx.load_from_string(path.read_bytes())
    entry = next(entry for entry in model.metadata_props if entry.key == SPEC_KEY)
    spec = msgspec.json.decode(entry.value, type=PolicySpec)
    entry.value = msgspec.json.encode(msgspec.structs.replace(spec, **changes)).decode()
    path.write_bytes(model.SerializeToString())
    return path


OBS = Leaf(name="obs", shape=(4,))
STATE = StateLeaf(name="h", output="h_out", shape=(-1, 3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"observation": (Leaf(name="obs", shape=(5,)),)},
            "promises obs: float32 [batch, 5], its graph has obs: float32 [",
        ),
        ({"observation": (Leaf(name="obs", shape=(4, 1)),)}, "promises obs: float32 [batch, 4, 1], its graph has obs"),
        (
            {"observation": (Leaf(name="obs", shape=(4,), dtype="uint8"),)},
            "promises obs: uint8 [batch, 4], its graph has",
        ),
        ({"observation": (Leaf(name="pixels", shape=(4,)),)}, "promises inputs pixels, its graph has inputs obs"),
        ({"observation": (OBS, Leaf(name="more"))}, "promises inputs more, obs, its graph has inputs obs"),
        ({"state": (STATE,)}, "promises inputs h, obs, its graph has inputs obs"),
        ({"outputs": ("action", "values")}, "promises outputs values, its graph has outputs action, q_values"),
        ({"outputs": ("move",)}, "promises outputs move, its graph has"),
        ({"action": {"n": 3}}, "promises q_values: float32 [batch, 3], its graph has q_values: float32 [batch, 2]"),
    ],
)
def test_a_graph_that_does_not_fit_its_description(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = graphs.save_linear(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS)
    with pytest.raises(CorruptFile, match=re.escape(message)):
        load_onnx(with_spec(path, **changes))


def test_a_fixed_batch_does_not_fit(tmp_path: Path) -> None:
    path = graphs.save_linear(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS, batch=1)
    with pytest.raises(CorruptFile, match=r"promises obs: float32 \[batch, 4\], its graph has obs: float32 \[1, 4\]"):
        load_onnx(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"observation": ()},
        {"observation": (OBS, OBS)},
        {"observation": (Leaf(name="obs", shape=(-1,)),)},
        {"observation": (Leaf(name="obs", shape=(2**20, 2**20)),)},  # would take all memory
        {"observation": (Leaf(name="obs", shape=(4,), dtype="object"),)},
        {"observation": (Leaf(name="obs", shape=(4,), dtype="no such thing"),)},
        {"action": {"n": 0}},
        {"action": {"n": 2, "start": 10**30}},
        {"outputs": ()},
        {"state": (StateLeaf(name="h", output="h_out", shape=(1, 3)),)},
        {"state": (StateLeaf(name="h", output="h_out", shape=(-1, -1)),)},
    ],
)
def test_a_description_that_contradicts_itself(changes: dict[str, Any], tmp_path: Path) -> None:
    path = graphs.save_linear(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS)
    with pytest.raises(CorruptFile, match=r"contradicts itself|damaged policy description"):
        load_onnx(with_spec(path, **changes))


def test_an_environment_id_that_would_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('code of the file ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = graphs.save_linear(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS)
    with_spec(path, env={"id": "evil:CartPole-v1"})
    with pytest.raises(CorruptFile, match=r"its environment id 'evil:CartPole-v1' would import a module"):
        load_onnx(path)


def test_an_action_outside_the_environments_is_refused(tmp_path: Path) -> None:
    spec = graphs.spec_of("toy/Started-v0", outputs=("action",))
    path = graphs.save_linear(tmp_path / "p.onnx", spec, np.zeros((3, 3)))
    policy = load_onnx(with_spec(path, action={"n": 3, "start": 6}))
    with pytest.raises(CorruptFile, match="action came out as 5; the environment's actions are 6 to 8"):
        policy(0)


def test_a_typed_environment_replaces_the_files(tmp_path: Path) -> None:
    path = graphs.save_linear(tmp_path / "p.onnx", graphs.spec_of("CartPole-v1"), WEIGHTS)
    assert load_onnx(path, env_id="CartPole-v0").spec.env.id == "CartPole-v0"
    with pytest.raises(UsageError, match="describes itself: leave --input and --action-output out"):
        load_onnx(path, env_id="CartPole-v1", inputs=["obs"])


# ---------------------------------------------------------------------------------------------- files of other tools


def foreign(path: Path, env_id: str = "CartPole-v1", **changes: Any) -> Path:
    spec = graphs.spec_of(env_id, outputs=changes.pop("outputs", ("q_values",)))
    weights = changes.pop("weights", WEIGHTS)
    return graphs.save_linear(path, spec, weights, metadata={"producer": "another tool"}, **changes)


def test_a_file_of_another_tool_needs_to_be_described(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_onnx(foreign(tmp_path / "p.onnx", outputs=("action", "q_values")))
    message = str(caught.value)
    assert "was not written by rlseq" in message
    assert "inputs obs: float32 [batch, 4] and outputs q_values: float32 [batch, 2]; action: int64 [batch]" in message
    assert message.endswith("Say it by hand: --env ID --input NAME --action-output NAME")


@pytest.mark.parametrize("output", ["q_values", "action"])
def test_a_file_of_another_tool_plays(output: str, tmp_path: Path) -> None:
    path = foreign(tmp_path / "p.onnx", outputs=("action", "q_values"))
    policy = load_onnx(path, env_id="CartPole-v1", inputs=["obs"], action_output=output)
    obs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    assert policy.act(step_of(obs), ())[0].tolist() == (obs @ WEIGHTS).argmax(1).tolist()
    assert policy.spec.env.id == "CartPole-v1" and policy.spec.outputs == (output,)


def test_a_single_input_and_output_need_no_names(tmp_path: Path) -> None:
    policy = load_onnx(foreign(tmp_path / "p.onnx"), env_id="CartPole-v1")
    assert policy([0.0, 0.0, 0.0, 1.0]) == 0 and policy([0.0, 0.0, 1.0, 0.0]) == 1
    with pytest.raises(UsageError, match="say with --action-output NAME which output decides"):
        load_onnx(foreign(tmp_path / "p.onnx", outputs=("action", "q_values")), env_id="CartPole-v1")


def test_a_fixed_batch_of_another_tool_plays_one_environment(tmp_path: Path) -> None:
    policy = load_onnx(foreign(tmp_path / "p.onnx", batch=1), env_id="CartPole-v1")
    assert policy([0.0, 0.0, 1.0, 0.0]) == 1
    with pytest.raises(RlseqError, match="was exported for batches of 1 only, not 2: play it with --envs 1"):
        policy.act(step_of(np.zeros((2, 4), np.float32)), ())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": ["observation"]}, "has no input 'observation'. It has inputs obs"),
        ({"inputs": ["obss"]}, "has no input 'obss'. Did you mean obs?"),
        (
            {"inputs": ["obs", "obs"]},
            "name one input for each part of the observation of CartPole-v1 (obs: float32 [4])",
        ),
        ({"inputs": []}, "Given: none"),
        ({"action_output": "q_value"}, "which output decides. Did you mean q_values?"),
        (
            {"env_id": "Acrobot-v1"},
            "input obs: float32 [batch, 4] does not take the environment's observation obs: float32 [6]",
        ),
        ({"env_id": "CartPoll-v1"}, "Did you mean CartPole-v1"),
        ({"env_id": "nowhere_at_all:Env-v0"}, "--import nowhere_at_all: no module of this name"),
        ({"env_id": "Pendulum-v1"}, "DQN takes a maximum over actions"),
    ],
)
def test_what_was_typed_does_not_fit(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        load_onnx(foreign(tmp_path / "p.onnx"), **{"env_id": "CartPole-v1", **arguments})


def test_an_output_that_is_no_decision(tmp_path: Path) -> None:
    path = foreign(tmp_path / "p.onnx", "toy/Started-v0", weights=np.zeros((3, 3)))
    with pytest.raises(
        UsageError,
        match=re.escape("the output q_values: float32 [batch, 3] is neither action values, float32 [batch, 4]"),
    ):
        load_onnx(path, env_id="toy/Identity-v0")


def test_several_inputs_are_named_in_the_order_of_the_space(tmp_path: Path) -> None:
    spec = graphs.spec_of("toy/Dict-v0")
    weights = np.random.default_rng(0).normal(size=(graphs.width_of(spec), 2))
    path = foreign(tmp_path / "p.onnx", "toy/Dict-v0", weights=weights)
    names = [leaf.name for leaf in spec.observation]
    with pytest.raises(
        UsageError, match="--input NAME --input NAME --input NAME --input NAME --input NAME --input NAME"
    ):
        load_onnx(path, env_id="toy/Dict-v0")
    policy = load_onnx(path, env_id="toy/Dict-v0", inputs=names)
    obs = observations(spec, 5)
    np.testing.assert_allclose(policy.q_values(obs), graphs.features(obs, spec) @ weights.astype(np.float32), rtol=1e-5)


def test_a_graph_of_another_dtype_is_fed_in_it(tmp_path: Path) -> None:
    """A double input, and int32 actions."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("Cast", ["positive"], ["a"], to=TensorProto.INT32),
    ]
    graph = helper.make_graph(
        nodes,
        "other",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [None, 4])],
        [helper.make_tensor_value_info("a", TensorProto.INT32, [None])],
        [
            helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
            helper.make_tensor("zero", TensorProto.DOUBLE, [], [0.0]),
        ],
    )
    path = tmp_path / "double.onnx"
    path.write_bytes(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    )
    policy = load_onnx(path, env_id="CartPole-v1")
    actions, _ = policy.act(step_of(np.array([[1, 0, 0, 0], [-1, 0, 0, 0]], np.float32)), ())
    assert actions.tolist() == [1, 0] and actions.dtype == np.int64
