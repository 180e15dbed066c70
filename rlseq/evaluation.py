"""Scoring what was trained: a policy by greedy episodes, a sequence model on its validation data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlseq.envs.make import MakeEnv
from rlseq.errors import UsageError
from rlseq.locate import Located, locate
from rlseq.playing import open_player

EVALUATION_ENVS = 10
EVALUATION_EPISODES = 100


def evaluate(
    path: str | Path | None = None,
    *,
    episodes: int = EVALUATION_EPISODES,
    seed: int = 0,
    checkpoint: str = "best",
    num_envs: int | None = None,
    imports: Sequence[str] = (),
    env: str | MakeEnv | None = None,
    inputs: Sequence[str] | None = None,
    action_output: str | None = None,
    data: str | Path | None = None,
) -> dict[str, Any]:
    """Score greedy episodes: of a run with its network, of an agent or file with ONNX Runtime.

    A sequence model is scored on the whole validation split of its data; on other data on all of them, with its own
    scaling, columns, labels and vocabulary.

    Args:
        path: a run, a shipped agent or an `.onnx` file; None: the newest run.
        episodes: how many; episode i has the seed f(seed, i), however many environments there are.
        seed: of the episodes.
        checkpoint: of a run: "best", "last" or a step.
        num_envs: environments side by side; None: as in training.
        imports: modules that register the environment.
        env: another environment id, or a function that makes one.
        inputs, action_output: names in an `.onnx` file that rlseq did not write.
        data: of a sequence model: where its data is, or other data; None: where it was in training.

    Returns:
        mean_return, std_return, min_return, max_return, episodes, mean_length, steps_per_second, seed, env_id; of a
        sequence model task, the task's metrics, tokens (how many predictions were measured), sample and data; of other
        data measured_on, and perhaps a note.
    """
    found = locate(path)
    if found.is_sequence():
        from rlseq.generation import evaluate_sequence

        no_environment(
            found,
            {
                "--envs": num_envs,
                "--import": imports,
                "--env": env,
                "--input": inputs,
                "--action-output": action_output,
                "--episodes": None if episodes == EVALUATION_EPISODES else episodes,
                "--seed": seed or None,
            },
        )
        return evaluate_sequence(found, str(checkpoint), None if data is None else str(data))
    if data is not None:
        raise UsageError(f"--data {data}: {found.name} is a policy, which is scored in its environment: leave it out.")
    if found.run is not None:
        from rlseq.trained import open_trained, score_network

        opened = open_trained(found.run, checkpoint=str(checkpoint), imports=imports, env=env)
        return score_network(
            opened.net, opened.spec, opened.make, opened.options, episodes=episodes, seed=seed, num_envs=num_envs
        )
    _no_checkpoint(found, checkpoint)
    from rlseq.player.rollout import rollout

    policy, make = open_player(found, imports, env, inputs, action_output)
    spec = policy.spec
    played = rollout(
        policy,
        make,
        episodes=episodes,
        seed=seed,
        num_envs=EVALUATION_ENVS if num_envs is None else num_envs,
        fresh=spec.env.fresh,
    )
    return played.summary(seed, spec.env.id)


def _no_checkpoint(found: Located, checkpoint: str) -> None:
    if checkpoint != "best":
        raise UsageError(f"--checkpoint {checkpoint}: {found.name} is one exported policy; only a run has checkpoints.")


def no_environment(found: Located, given: Mapping[str, Any]) -> None:
    """A sequence model has no use for what was given, flag -> value.

    Raises:
        UsageError: something was given.
    """
    for flag, value in given.items():
        if value is not None and value != ():
            typed = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            raise UsageError(
                f"{flag} {typed}: {found.name} is a sequence model, without environment and episodes: leave it out."
            )
