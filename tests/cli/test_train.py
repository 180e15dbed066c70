"""`rlseq train dqn`: what is typed reaches the pipeline; the series over seeds. The training itself is a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rlseq import pipeline
from rlseq.cli.main import app
from rlseq.cli.options import all_fields, flag_of
from rlseq.cli.summary import over_seeds
from rlseq.cli.training import parse_seeds
from rlseq.errors import Interrupted, NonFiniteLoss, UsageError
from rlseq.events import Event
from rlseq.resolve import EVERYDAY
from rlseq.scores import METRICS
from tests.cli.conftest import Cli, failed, only_json

Given = list[dict[str, Any]]


def summary(run: str, mean: float) -> dict[str, Any]:
    """What a training gives back."""
    return {
        "algorithm": "dqn",
        "run": run,
        "mean_return": mean,
        "std_return": 12.5,
        "min_return": 100.0,
        "max_return": 500.0,
        "episodes": 100,
        "steps": 50_000,
        "updates": 12_250,
        "stopped": "all steps done",
        "best_step": 47_500,
        "best_evaluation": 500.0,
        "training_seconds": 71.6,
        "policy": {"file": "policy.onnx", "bytes": 272_670, "sha256": "00"},
        "parity": {"max_error": 1.5e-6, "episodes": 20, "episodes_with_equal_return": 20},
    }


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """The arguments of every training; each scores ten more than its seed."""
    calls: Given = []

    def train(algorithm: str, *, callbacks: list[Callable[[Event], None]], source: str, **arguments: Any) -> Any:
        assert (algorithm, source, len(callbacks)) == ("dqn", "command line", 1)
        calls.append(arguments)
        seed = arguments["seed"] or 0
        if seed == 13:
            raise NonFiniteLoss("the loss is NaN at step 77")
        if seed == 14:
            raise Interrupted("stopped at step 5 of 10; everything is saved", 15)
        callbacks[0](Event("warning", 0, 10, {"message": "slow [here]"}, lambda: None))
        run = f"runs/{arguments['name'] or f'run-{seed}'}"
        return pipeline.TrainingResult(Path(run), summary(run, seed + 10.0))

    monkeypatch.setattr(pipeline, "train", train)
    return calls


def test_nothing_typed_is_nothing_given(cli: Cli, given: Given) -> None:
    assert cli("train", "dqn", "CartPole-v1").exit_code == 0
    (arguments,) = given
    assert arguments.pop("values") == {}
    assert arguments.pop("env") == "CartPole-v1"
    assert arguments.pop("recipe") == "auto"
    assert arguments.pop("imports") == ()
    assert arguments.pop("new_head") is False
    assert set(arguments) == {*EVERYDAY["dqn"], "resume", "init_from"}
    assert all(value is None for value in arguments.values())


def test_everything_typed_is_given(cli: Cli, given: Given) -> None:
    words = (
        "--steps 1000 --seed 3 --device cpu --amp --lr 3e-4 --batch-size 32 --envs 4 --threads 2 --name mine "
        "--recipe none --set dqn.gamma=0.9 --set env.kwargs.gravity=5 --import my_envs --import others"
    )
    assert cli("train", "dqn", "module:Env-v0", *words.split()).exit_code == 0
    assert given == [
        {
            "env": "module:Env-v0",
            "recipe": "none",
            "values": {"dqn": {"gamma": "0.9"}, "env": {"kwargs": {"gravity": "5"}}},
            "imports": ["my_envs", "others"],
            "resume": None,
            "init_from": None,
            "new_head": False,
            "steps": 1000,
            "seed": 3,
            "device": "cpu",
            "amp": "auto",
            "lr": 3e-4,
            "batch_size": 32,
            "envs": 4,
            "threads": 2,
            "name": "mine",
            "freeze": None,
            "lr_multiplier": None,
        }
    ]
    assert type(given[0]["device"]) is str


def test_no_amp_is_off_and_resume_needs_no_environment(cli: Cli, given: Given) -> None:
    assert cli("train", "dqn", "--no-amp", "--resume", "runs/a", "--steps", "9").exit_code == 0
    assert cli("train", "dqn", "X-v0", "--from", "runs/a").exit_code == 0
    assert (given[0]["amp"], given[0]["resume"], given[0]["env"]) == ("off", "runs/a", None)
    assert given[1]["init_from"] == "runs/a"


def test_what_another_runs_weights_are_to_become(cli: Cli, given: Given) -> None:
    words = "--from runs/a --new-head --freeze core.layers.0.* --freeze head.bias --lr-multiplier core.*=0.1"
    more = "--lr-multiplier a=b=2 --lr-multiplier core.*=.5"
    assert cli("train", "dqn", "X-v0", *words.split(), *more.split()).exit_code == 0
    (arguments,) = given
    assert (arguments["init_from"], arguments["new_head"]) == ("runs/a", True)
    assert arguments["freeze"] == ["core.layers.0.*", "head.bias"]
    assert list(arguments["lr_multiplier"].items()) == [("a=b", 2.0), ("core.*", 0.5)]  # the last one given stands last


@pytest.mark.parametrize("word", ["core.*", "=2", "core.*=", "core.*=fast", ""])
def test_a_wrong_multiplier(cli: Cli, given: Given, word: str) -> None:
    failed(cli("train", "seq", f"--lr-multiplier={word}"), 2, f"--lr-multiplier {word!r}: write GLOB=X, for example")
    assert given == []


@pytest.mark.parametrize("algorithm", ["dqn", "seq"])
def test_a_flag_says_what_its_option_says(algorithm: str) -> None:
    top: Any = typer.main.get_command(app)
    params = {param.opts[0]: param for param in top.commands["train"].commands[algorithm].params}
    texts = {field.path: field.help for field in all_fields(algorithm)}
    for option in EVERYDAY[algorithm].values():
        if option == "seq.task":  # the argument
            continue
        flag = flag_of(option, algorithm)
        assert flag is not None and params[flag].help.startswith(f"{option}: {texts[option]}"), flag


def test_the_end(cli: Cli, given: Given) -> None:
    result = cli("train", "dqn", "CartPole-v1", "--seed", 4)
    assert result.stderr == "Warning: slow [here]\n"
    assert result.stdout == (
        "score            14 ± 12.5 over 100 episodes (min 100, max 500)\n"
        "best evaluation  500 at step 47500\n"
        "trained          50000 steps, 12250 updates in 0:01:12 (all steps done)\n"
        "policy.onnx      266.3 KiB, values within 1.5e-06 of the network's, 20 of 20\n"
        "                 episodes with the same return\n"
        "run              runs/run-4\n"
        "\n"
        "Next:  rlseq play runs/run-4\n"
        "       rlseq eval runs/run-4\n"
        "       rlseq board\n"
    )


def test_a_run_with_a_blank_in_its_name_can_be_copied(cli: Cli, given: Given) -> None:
    assert "rlseq play 'runs/my run'\n" in cli("train", "dqn", "X-v0", "--name", "my run").stdout


def test_quiet_and_json(cli: Cli, given: Given) -> None:
    result = cli("train", "dqn", "CartPole-v1", "--quiet")
    assert (result.stdout, result.stderr) == ("runs/run-0\n", "Warning: slow [here]\n")
    assert only_json(cli("train", "dqn", "CartPole-v1", "--json")) == summary("runs/run-0", 10.0)


@pytest.mark.parametrize(("text", "seeds"), [("0:1", [0]), ("2:5", [2, 3, 4]), ("10:12", [10, 11])])
def test_seeds_are_a_slice(text: str, seeds: list[int]) -> None:
    assert list(parse_seeds(text, None, None)) == seeds


@pytest.mark.parametrize("text", ["", "3", ":3", "3:", "3:3", "4:3", "-1:3", "0:3:1", "a:b", "0,3", "0.5:2"])
def test_wrong_seeds(cli: Cli, given: Given, text: str) -> None:
    failed(
        cli("train", "dqn", "X-v0", f"--seeds={text}"), 2, f"--seeds {text}: write A:B", "--seeds 0:5 is 0, 1, 2, 3, 4"
    )
    assert given == []


def test_seeds_exclude_seed_and_resume() -> None:
    with pytest.raises(UsageError, match="--seeds 0:3 and --seed 0: give one"):
        parse_seeds("0:3", 0, None)
    with pytest.raises(UsageError, match="--seeds 0:3 begins new runs, --resume runs/a goes on"):
        parse_seeds("0:3", None, "runs/a")


def test_a_series(cli: Cli, given: Given) -> None:
    result = cli("train", "dqn", "CartPole-v1", "--seeds", "0:3", "--name", "mine", "--steps", "100")
    assert [(one["seed"], one["name"], one["steps"]) for one in given] == [
        (0, "mine-s0", 100),
        (1, "mine-s1", 100),
        (2, "mine-s2", 100),
    ]
    assert result.exit_code == 0
    assert result.stdout == (
        "seed  score      run\n"
        "   0  10 ± 12.5  runs/mine-s0\n"
        "   1  11 ± 12.5  runs/mine-s1\n"
        "   2  12 ± 12.5  runs/mine-s2\n"
        "\n"
        "mean return 11 ± 0.82 over 3 seeds (min 10, max 12)\n"
    )
    assert "Seed 1 (run 2 of 3)" in result.stderr


def test_a_series_without_a_name(cli: Cli, given: Given) -> None:
    result = cli("train", "dqn", "CartPole-v1", "--seeds", "5:7", "--quiet")
    assert [one["name"] for one in given] == [None, None]
    assert result.stdout == "runs/run-5\nruns/run-6\n"


def test_a_series_as_json(cli: Cli, given: Given) -> None:
    value = only_json(cli("train", "dqn", "CartPole-v1", "--seeds", "2:4", "--json"))
    assert value.pop("runs") == [summary("runs/run-2", 12.0), summary("runs/run-3", 13.0)]
    assert value == {"seeds": [2, 3], "mean_return": 12.5, "std_return": 0.5, "min_return": 12.0, "max_return": 13.0}


@pytest.mark.parametrize(("last", "code", "word"), [(13, 1, "the loss is NaN"), (14, 143, "stopped at step 5 of 10")])
def test_a_series_that_ends_early(cli: Cli, given: Given, last: int, code: int, word: str) -> None:
    first = last - 1 if last == 13 else last
    result = cli("train", "dqn", "CartPole-v1", "--seeds", f"{first}:20")
    failed(result, code, word)
    assert len(given) == last - first + 1
    if last == 13:
        assert "Finished before that: runs/run-12\n" in result.stderr
    result = cli("train", "dqn", "CartPole-v1", "--seeds", f"{first}:20", "--json")
    assert only_json(result)["exit_code"] == code


def test_statistics_over_seeds() -> None:
    (metric,) = METRICS["dqn"]
    one = over_seeds([{"mean_return": 3.0}], metric)
    assert one == {"mean_return": 3.0, "std_return": 0.0, "min_return": 3.0, "max_return": 3.0}
    assert over_seeds([{"mean_return": 1.0}, {"mean_return": 4.0}], metric)["std_return"] == 1.5


@pytest.mark.parametrize("text", ["gamma", "=3", "dqn..gamma=1"])
def test_a_wrong_set(cli: Cli, given: Given, text: str) -> None:
    failed(cli("train", "dqn", "X-v0", "--set", text), 2, f"--set {text!r}: write NAME=VALUE")


def test_seeds_beyond_all_sense_are_refused(cli: Cli) -> None:
    for text in ("0:99999999999999999999", "0:20000", "9" * 5000 + ":" + "9" * 5001):
        result = cli("train", "dqn", "CartPole-v1", "--seeds", text)
        assert result.exit_code == 2
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("seq --task copy --steps 3", "TASK is an argument, typed without a flag: rlseq train seq copy"),
        ("dqn --env CartPole-v1", "ENV_ID is an argument, typed without a flag: rlseq train dqn CartPole-v1"),
    ],
)
def test_an_argument_is_no_flag(cli: Cli, given: Given, words: str, right: str) -> None:
    failed(cli(f"train {words}"), 2, right)
    assert not given
    assert f" {words.split()[1]} " not in cli(f"train {words.split()[0]} --help").stdout
