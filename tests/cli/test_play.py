"""`rlseq eval`, `rlseq play` and `rlseq export`: what is typed reaches the pipeline, what comes back is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq import pipeline
from rlseq.locate import Located
from tests import graphs
from tests.cli.conftest import Cli, failed, only_json

RESULT = {
    "mean_return": 482.25,
    "std_return": 31.0,
    "min_return": 300.0,
    "max_return": 500.0,
    "episodes": 100,
    "mean_length": 482.25,
    "steps_per_second": 51_234.5,
    "seed": 0,
    "env_id": "CartPole-v1",
}
KEYS = set(RESULT)
PARITY = {
    "observations": 1503,
    "batch_sizes": [1, 7, 64],
    "max_error": 1.6e-7,
    "episodes": 20,
    "episodes_with_equal_return": 20,
    "mean_return_network": 482.25,
    "mean_return_onnx": 482.25,
}


@pytest.fixture
def given(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """The arguments of eval, play and export; there is one file, x.onnx."""
    calls: list[tuple[Any, dict[str, Any]]] = []
    (place / "x.onnx").write_bytes(b"0" * 2048)

    def record(result: Any) -> Any:
        def function(path: Any, **arguments: Any) -> Any:
            calls.append((path, arguments))
            return result

        return function

    monkeypatch.setattr(Located, "is_sequence", lambda found: False)  # the file is none
    monkeypatch.setattr(pipeline, "evaluate", record(RESULT))
    monkeypatch.setattr(pipeline, "play", record({**RESULT, "native": True, "video": "x.gif"}))
    monkeypatch.setattr(pipeline, "export", record(pipeline.ExportResult(place / "x.onnx", PARITY)))
    return calls


@pytest.fixture
def policy(place: Path) -> Path:
    """A real policy for CartPole that needs no torch; it pushes where the pole falls."""
    weights = np.array([[0.0, 0.1], [0.0, 0.5], [0.0, 1.0], [0.0, 1.0]])
    return graphs.save_linear(place / "policy.onnx", graphs.spec_of("CartPole-v1"), weights)


def test_what_eval_is_given(cli: Cli, given: Any) -> None:
    cli("eval", "x.onnx")
    cli(
        "eval x.onnx --episodes 7 --seed 5 --checkpoint last --envs 3 --import a --import b --env m:E-v0 --input o "
        "--input p --action-output q"
    )
    assert given[0] == (
        "x.onnx",
        {
            "episodes": 100,
            "seed": 0,
            "checkpoint": "best",
            "num_envs": None,
            "imports": (),
            "env": None,
            "inputs": None,
            "action_output": None,
            "data": None,
        },
    )
    assert given[1] == (
        "x.onnx",
        {
            "episodes": 7,
            "seed": 5,
            "checkpoint": "last",
            "num_envs": 3,
            "imports": ["a", "b"],
            "env": "m:E-v0",
            "inputs": ["o", "p"],
            "action_output": "q",
            "data": None,
        },
    )


def test_what_play_is_given(cli: Cli, given: Any) -> None:
    cli("play", "x.onnx")
    cli("play x.onnx --episodes 7 --seed 5 --envs 3 --native --render gif --out y.gif")
    assert (given[0][1]["episodes"], given[0][1]["num_envs"], given[0][1]["native"]) == (10, 1, False)
    assert (given[0][1]["render"], given[0][1]["out"]) == (None, None)
    assert (given[1][1]["episodes"], given[1][1]["num_envs"], given[1][1]["native"]) == (7, 3, True)
    assert (given[1][1]["render"], given[1][1]["out"]) == ("gif", "y.gif")
    assert type(given[1][1]["render"]) is str


def test_how_a_score_is_shown(cli: Cli, given: Any) -> None:
    result = cli("eval", "x.onnx")
    assert result.stderr == "Playing 100 episodes with x.onnx ...\n"
    assert result.stdout == (
        "environment  CartPole-v1\n"
        "return       482.2 ± 31 over 100 episodes (min 300, max 500)\n"
        "length       482.2 steps on average\n"
        "speed        51234 steps/s\n"
        "seed         0\n"
    )
    played = cli("play", "x.onnx").stdout
    assert played.endswith("native       yes: compares with no result that is not\nvideo        x.gif\n")


def test_how_a_task_is_shown(cli: Cli, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"exact_match": 0.99871, "token_accuracy": 1.0, "loss": 0.01, "tokens": 40, "sample": "ba=ab"}
    result = {"task": "sort", **scores, "data": "write the symbols in order, length 2"}
    monkeypatch.setattr(pipeline, "evaluate", lambda *arguments, **named: result)
    assert cli("eval any --data x").stdout == (
        "exact match     0.9987, over 40 tokens of answers of the validation split\n"
        "token accuracy  1\n"
        "loss            0.01 nats a token\n"
        "data            write the symbols in order, length 2\n"
        "\n"
        "What it answers:\n"
        "ba=ab\n"
    )
    assert cli("eval any --data x --quiet").stdout == "exact match 0.9987\n"
    assert only_json(cli("eval any --data x --json")) == result


def test_quiet_and_json(cli: Cli, given: Any) -> None:
    result = cli("eval", "x.onnx", "-q")
    assert (result.stdout, result.stderr) == ("482.2 ± 31\n", "")
    assert only_json(cli("eval", "x.onnx", "--json")) == RESULT
    assert only_json(cli("play", "x.onnx", "--json")) == {**RESULT, "native": True, "video": "x.gif"}


@pytest.mark.parametrize("command", ["eval", "export"])
def test_checkpoints(cli: Cli, given: Any, command: str) -> None:
    assert cli(command, "x.onnx", "--checkpoint", "2500").exit_code == 0
    assert given[0][1]["checkpoint"] == "2500"
    for wrong in ("first", "-5", "2.5", ""):
        failed(cli(command, "x.onnx", f"--checkpoint={wrong}"), 2, f"--checkpoint {wrong}: give best, last, or a step")
    failed(cli("play", "x.onnx", "--checkpoint", "last"), 2, "No such option: --checkpoint")


def test_export(cli: Cli, given: Any) -> None:
    result = cli("export x.onnx --out y.onnx --opset 20 --checkpoint last --import a")
    assert given == [("x.onnx", {"out": "y.onnx", "opset": 20, "checkpoint": "last", "imports": ["a"]})]
    assert "size      2.0 KiB\n" in result.stdout
    assert "values    differ by at most 1.6e-07 on 1503 observations (batches of 1, 7, 64)\n" in result.stdout
    value = only_json(cli("export", "x.onnx", "--json"))
    assert (value["path"], value["bytes"], value["parity"]) == (str(Path.cwd() / "x.onnx"), 2048, PARITY)
    assert cli("export", "x.onnx", "--quiet").stdout == f"{Path.cwd() / 'x.onnx'}\n"


@pytest.mark.parametrize("command", ["eval", "play", "export", "info"])
def test_no_run_yet(cli: Cli, command: str) -> None:
    failed(cli(command), 2, "there is no run in runs yet. Begin with: rlseq train dqn CartPole-v1")


def test_eval_and_play_agree(cli: Cli, policy: Path) -> None:
    scored = only_json(cli("eval", policy, "--episodes", 5, "--json"))
    played = only_json(cli("play", policy, "--episodes", 5, "--envs", 2, "--json"))
    assert set(scored) == KEYS
    assert set(played) == KEYS | {"native", "video"}
    same = KEYS - {"steps_per_second"}
    assert {key: scored[key] for key in same} == {key: played[key] for key in same}
    assert (played["native"], played["video"]) == (False, None)
    assert scored["mean_return"] > 100  # the policy is a good one


def test_native(cli: Cli, policy: Path) -> None:
    played = only_json(cli("play", policy, "--episodes", 6, "--envs", 3, "--native", "--json"))
    assert (played["native"], played["episodes"]) == (True, 6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("play policy.onnx --native --render gif", "leave out one of --native, --render"),
        ("play policy.onnx --out x.gif", "add --render gif or --render mp4"),
        ("play policy.onnx --env CartPol-v1", "Did you mean CartPole-v1"),
        ("play policy.onnx --input obs", "leave --input and --action-output out"),
        ("play policy.onnx --import no_such_module", "--import no_such_module: no module of this name"),
        ("eval policy.onnx --checkpoint last", "only a run has checkpoints"),
        ("export policy.onnx", "is exported already"),
    ],
)
def test_what_does_not_go_together(cli: Cli, policy: Path, words: str, message: str) -> None:
    failed(cli(words), 2, message)


def test_another_environment_does_not_fit(cli: Cli, policy: Path) -> None:
    words = ("play", policy, "--env", "Acrobot-v1")
    failed(cli(*words), 2, "obs float32[4] and 2 actions", "obs float32[6] and 3 actions")


def test_a_file_that_is_none(cli: Cli, place: Path) -> None:
    (place / "bad.onnx").write_bytes(b"not a model")
    for command in ("eval", "play", "info"):
        failed(cli(command, "bad.onnx"), 1, "bad.onnx is not an ONNX file")
