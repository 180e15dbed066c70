"""Options that were typed and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlseq.config import Layer, Typed, resolve
from rlseq.errors import UsageError
from rlseq.fields import fields
from rlseq.idle import OF_ALL, OF_SEQUENCES, Use, check_idle
from rlseq.pipeline import train
from rlseq.resolve import TREES


def check(typed: dict[str, Any], recipe: dict[str, Any] | None = None, algorithm: str = "seq") -> None:
    check_idle(algorithm, resolve(TREES[algorithm], Layer("recipe", recipe or {}), Layer("typed", typed)), typed)


COPY = {"task": "copy"}
SERIES = {"task": "forecast", "target": "x"}


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            {"net": {"core": "lstm", "qk_norm": True}},
            "net.qk_norm = true means nothing with net.core = lstm: it is for ",
        ),
        (
            {"net": {"core": "lstm", "activation": "relu2"}},
            "net.activation = relu2 .*: it is for net.core = gpt or enc",
        ),
        (
            {"net": {"core": "encoder", "checkpoint_activations": True}},
            "net.checkpoint_activations = true .* = encoder",
        ),
        (
            {"net": {"core": "gpt", "bidirectional": True}},
            "net.bidirectional = true .* net.core = lstm or gru. Leave it",
        ),
        (
            {"net": {"core": "gru", "size": "tiny", "layers": 1, "width": 8}},
            "net.size = tiny .* net.layers, net.width:",
        ),
        (
            {"seq": {"horizon": 10}},
            "seq.horizon = 10 .* seq.task = text: it is for seq.task = forecast or mackey-glass",
        ),
        ({"seq": {**COPY, "context": 128}}, "seq.context = 128 means nothing with seq.task = copy: it is for "),
        ({"seq": {**COPY, "buckets": 2}}, "seq.buckets = 2 .* questions are of one length: .* seq.min_length"),
        ({"seq": {"task": "classify", "label": "x", "buckets": 2}}, "seq.buckets = 2 .* a column seq.group"),
        (
            {"seq": {"pattern": "*.py", "data": "t.txt"}},
            r"seq.pattern = \*.py means nothing with seq.data = t.txt: .* folder",
        ),
        ({"seq": {"focal_gamma": 2.0}}, "seq.focal_gamma = 2.0 .* seq.loss = auto: it is for seq.loss = focal"),
        ({"seq": {**SERIES, "huber_delta": 1.0, "loss": "mse"}}, "seq.huber_delta = 1.0 .* seq.loss = mse"),
        ({"seq": {**SERIES, "quantiles": [0.1, 0.5, 0.9]}}, r"seq.quantiles = \[0.1,0.5,0.9\] means nothing"),
        (
            {"seq": {"label_smoothing": 0.1, "loss": "focal"}},
            "seq.label_smoothing = 0.1 .* seq.loss = auto or cross_ent",
        ),
        (
            {"optim": {"name": "adam", "muon_momentum": 0.9}},
            "optim.muon_momentum = 0.9 .* optim.name = adam: .* = muon",
        ),
        ({"optim": {"name": "sgd", "beta2": 0.9}}, "optim.beta2 = 0.9 .* optim.name = sgd"),
        ({"optim": {"step_updates": 5}}, "optim.step_updates = 5 .* optim.schedule = linear: .* optim.schedule = step"),
        ({"optim": {"schedule": "constant", "final_factor": 0.1}}, "optim.final_factor = 0.1 .* = constant"),
        ({"optim": {"schedule": "constant"}, "run": {"horizon": 9}}, "run.horizon = 9 .* optim.schedule = constant"),
        (
            {"engine": {"gradients": "autograd"}},
            "engine.gradients = autograd .* algorithm = seq: it is for algorithm = dqn",
        ),
    ],
)
def test_what_has_no_effect_is_refused(typed: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check(typed)


@pytest.mark.parametrize(
    "typed",
    [
        {"net": {"core": "gpt", "qk_norm": True, "size": "tiny", "layers": 1, "width": 8, "heads": Typed("none")}},
        {"net": {"core": "lstm", "window": Typed("none"), "checkpoint_activations": False}},
        {"net": {"core": "transformer", "size": "tiny", "layers": 1, "width": 8}},
        {"seq": {**COPY, "buckets": 2, "min_length": 3, "columns": []}},
        {"seq": {"task": "classify", "label": "x", "group": "g", "buckets": 2}},
        {"seq": {"pattern": "*.py", "data": str(Path(__file__).parent)}},
        {"seq": {"focal_gamma": 2.0, "loss": "focal"}, "run": {"horizon": 9}},
        {"optim": {"schedule": "plateau", "final_factor": 0.1, "step_factor": 0.1, "plateau_patience": 1}},
    ],
)
def test_what_has_an_effect_or_says_nothing_is_taken(typed: dict[str, Any]) -> None:
    check(typed)


def test_a_recipe_may_hold_what_is_idle_and_what_is_typed_is_judged_by_the_whole() -> None:
    check({"optim": {"schedule": "constant"}}, {"optim": {"step_updates": 5, "final_factor": 0.5}})
    check({"optim": {"step_updates": 5}}, {"optim": {"schedule": "step"}})
    with pytest.raises(UsageError, match=r"optim.final_factor = 0.5"):
        check({"optim": {"final_factor": 0.5}}, {"optim": {"schedule": "constant"}})


def test_dqn_has_the_same_optimiser() -> None:
    check({"engine": {"gradients": "autograd"}, "run": {"horizon": 9}}, algorithm="dqn")
    with pytest.raises(UsageError, match=r"optim.decay_fraction = 0.5 .* optim.schedule = constant"):
        check({"optim": {"decay_fraction": 0.5}}, algorithm="dqn")


@pytest.mark.parametrize(("algorithm", "uses"), [("seq", OF_SEQUENCES), ("dqn", OF_ALL)])
def test_the_table_names_options_and_values_that_there_are(algorithm: str, uses: dict[str, Use]) -> None:
    known = {field.path: field for field in fields(TREES[algorithm])}
    for path, use in uses.items():
        assert path in known
        for value in use.values if use.of in known else ():
            assert value in known[use.of].type_text or use.of == "seq.loss"


def test_a_training_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSEQ_RUNS", str(tmp_path / "runs"))
    with pytest.raises(UsageError, match=r"net.qk_norm = true means nothing with net.core = lstm"):
        train("seq", values={"seq": {"task": "mackey-glass"}, "net": {"core": "lstm", "qk_norm": True}}, recipe="none")
    assert not (tmp_path / "runs").exists()
