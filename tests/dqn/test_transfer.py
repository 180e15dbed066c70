"""A training of a policy that begins with another run's weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlseq import runs
from rlseq.errors import UsageError
from rlseq.events import Event
from tests.dqn.test_on_gpu import twin  # noqa: F401
from tests.engine.twin import Twin
from tests.training import Steps, small, trainer, weights

SHORT: dict[str, Any] = {
    "run": {"steps": 120, "log_every": 40, "checkpoint_every": 60},
    "eval": {"every": 60, "episodes": 1, "final_episodes": 1},
}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the runs of all tests here lie; nothing is exported."""
    made = tmp_path_factory.mktemp("transfer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLSEQ_RUNS", str(made / "runs"))
        patch.setattr("rlseq.trained.export_network", lambda net, spec, path, make: {"bytes": path.write_bytes(b"")})
        yield made


@pytest.fixture(scope="module")
def parent(folder: Path) -> Path:
    return small(SHORT, name="parent").run


def test_it_begins_with_the_best_weights_and_what_is_frozen_stays(parent: Path) -> None:
    frozen = {"optim": {"freeze": ["core.*"], "weight_decay": 0.1}}
    child = runs.Run(small(SHORT, frozen, name="frozen", init_from=parent).run)
    best, last = weights(runs.Run(parent).checkpoint("best")), weights(child.checkpoint("last"))
    for name in (name for name in last if name.startswith("model/")):
        assert np.array_equal(last[name], best[name]) == name.startswith("model/core."), name
    for name in (name for name in best if name.startswith("model/core.")):
        np.testing.assert_array_equal(last[f"trainer/target.{name.removeprefix('model/')}"], best[name])
    step = child.lineage()[-1]
    assert (step["begun_with"]["run"], step["begun_with"]["loaded"]) == ("parent", ["core.*", "head.*"])
    assert step["frozen"] == ["core.*"]


class ThreeActions(gymnasium.ActionWrapper):
    """The third action does what the first one does."""

    action_space = gymnasium.spaces.Discrete(3)

    def action(self, action: int) -> int:
        return action % 2


def three_actions() -> gymnasium.Env:
    return ThreeActions(gymnasium.make("CartPole-v1"))


def test_an_environment_with_other_actions_needs_a_new_head(parent: Path) -> None:
    with pytest.raises(UsageError, match=r"head.\w+ is \[2.*\] there and \[3.*\] in this network.*Add --new-head"):
        small(SHORT, env=three_actions, name="refused", init_from=parent)
    told: list[str] = []

    def listen(event: Event) -> None:
        if event.kind == "warning":
            told.append(str(event.data["message"]))

    child = small(SHORT, env=three_actions, name="three", init_from=parent, new_head=True, callbacks=[listen]).run
    (message,) = [message for message in told if message.startswith(f"--from {parent}: 2 of 4 parameters")]
    assert (
        "(core.*). Begun anew: head.weight [3, 16], head.bias [3]. Not taken from it: head.bias [2], head.w" in message
    )
    first, best = weights(runs.Run(child).checkpoint("0")), weights(runs.Run(parent).checkpoint("best"))
    for kind in ("model/", "trainer/target."):
        np.testing.assert_array_equal(first[f"{kind}core.layers.0.weight"], best["model/core.layers.0.weight"])
    assert first["model/head.weight"].shape == (3, 16)


def test_other_observations_fit_no_layer(parent: Path) -> None:
    with pytest.raises(UsageError, match=r"core.layers.0.weight is \[16, 4\] there and \[16, 6\].*has another size"):
        small(SHORT, env="Acrobot-v1", name="refused", init_from=parent, new_head=True)
    assert not (parent.parent / "refused").exists()


def test_another_kind_of_network_is_refused(parent: Path) -> None:
    with pytest.raises(
        UsageError, match=r"net.hidden = \(16,\) there and \(8,\) here. Give this one the other's options"
    ):
        small(SHORT, {"net": {"hidden": [8]}}, name="refused", init_from=parent)
    from rlseq.pipeline import train

    with pytest.raises(
        UsageError, match=r"it trained a policy \(dqn, net.core = mlp\), and this is a training of a seq"
    ):
        train("seq", name="refused", init_from=parent, data=__file__, values={"seq": {"context": 8}})
    assert not (parent.parent / "refused").exists()


@pytest.mark.parametrize("what", ["cartpole-dqn", "somewhere/policy.onnx"])
def test_an_exported_model_is_no_run(what: str) -> None:
    with pytest.raises(UsageError, match=f"--from {what}: weights are taken from a run, .* exported model"):
        small(SHORT, name="child", init_from=what)


def test_weights_acted_with_on_a_cpu_follow_frozen_ones_too(twin: Twin) -> None:  # noqa: F811
    """With a GPU, which a CPU stands in for here: they are another layout's copy, one burst behind."""
    ours = trainer({"optim": {"freeze": ["head.*"], "lr_multipliers": {"core.layers.0.bias": 0.5}}})
    other = trainer({"run": {"seed": 5}})
    ours.load_weights({name: array.copy() for name, array in other.model().items()}, "runs/a")
    assert ours.mirror is not None
    obs = (np.ones((1, 4), np.float32),)
    np.testing.assert_allclose(ours.actor._values(obs), other.actor._values(obs), rtol=1e-5)
    head = ours.learner.net.head.weight.clone()
    ours.loop(Steps(80))  # type: ignore[arg-type]
    assert np.array_equal(ours.learner.net.head.weight.detach(), head.detach())
    np.testing.assert_array_equal(ours.mirror.state()[-len(head.flatten()) - 2 :][:-2], head.detach().flatten())
    ours.close(), other.close()
