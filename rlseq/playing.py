"""Playing a policy, without torch: its player and its environment made ready, and episodes played and shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rlseq.envs.make import MakeEnv, import_modules, maker, spaces_of, split_id
from rlseq.errors import UsageError
from rlseq.locate import Located, locate
from rlseq.purposes import use_of
from rlseq.resolve import read_sequence_options
from rlseq.sequence import SEQUENCE_KEY, decode_sequence_spec
from rlseq.spec import ActionSpec, Leaf

if TYPE_CHECKING:
    from rlseq.player.onnx_policy import OnnxPolicy


def play(
    path: str | Path | None = None,
    *,
    episodes: int = 10,
    seed: int = 0,
    num_envs: int = 1,
    native: bool = False,
    render: Literal["human", "gif", "mp4"] | None = None,
    out: str | Path | None = None,
    imports: Sequence[str] = (),
    env: str | MakeEnv | None = None,
    inputs: Sequence[str] | None = None,
    action_output: str | None = None,
) -> dict[str, Any]:
    """Play a policy with numpy, gymnasium and ONNX Runtime alone.

    Args:
        path: a run (its policy.onnx is played), a shipped agent or an `.onnx` file; None: the newest run.
        episodes, seed: as in `evaluate`.
        num_envs: environments side by side.
        native: step the environment's own vector implementation: fast, with seeds of its own; marked in the result.
        render: a window, or a file of the first environment's episodes.
        out: that file; None: `<name>.gif` or `.mp4` in the current folder.
        imports, env, inputs, action_output: as in `evaluate`.

    Returns:
        As `evaluate`, with `native` and `video`.
    """
    found = locate(path)
    if found.is_sequence():
        raise UsageError(f"{found.name} is a sequence model, which plays nothing: {use_of(_task(found), found.name)}")
    if native and render:
        raise UsageError(
            "--native steps many environments at once and cannot render: leave out one of --native, --render."
        )
    if out is not None and render not in ("gif", "mp4"):
        raise UsageError(f"--out {out}: only a video is written to a file; add --render gif or --render mp4.")
    if out is not None and Path(out).suffix != f".{render}":
        raise UsageError(f"--out {out}: with --render {render} the file's name must end in .{render}")
    mode = None if render is None else "human" if render == "human" else "rgb_array"
    policy, make = open_player(found, imports, env, inputs, action_output)
    if mode is not None:
        from rlseq.player.video import render_fps

        render_fps(
            make, policy.spec.env.id, mode
        )  # refuses an environment that has no such mode, and says which it has
        policy, make = open_player(found, imports, env, inputs, action_output, render_mode=mode)
    if native:
        from rlseq.player.native import rollout_native

        if callable(env):
            raise UsageError("native=True needs an environment id that gymnasium can make, not a function.")
        played = rollout_native(policy, policy.spec, episodes=episodes, seed=seed, num_envs=num_envs)
        return {**played.summary(seed, policy.spec.env.id), "native": True, "video": None}
    from rlseq.player.rollout import rollout

    fresh = policy.spec.env.fresh
    if render in ("gif", "mp4"):
        from rlseq.player.video import rollout_video

        file = Path(out) if out is not None else Path(f"{found.name}.{render}")
        played = rollout_video(policy, make, file, episodes=episodes, seed=seed, num_envs=num_envs, fresh=fresh)
        return {**played.summary(seed, policy.spec.env.id), "native": False, "video": str(file)}
    played = rollout(policy, make, episodes=episodes, seed=seed, num_envs=num_envs, fresh=fresh)
    return {**played.summary(seed, policy.spec.env.id), "native": False, "video": None}


def _task(found: Located) -> str:
    """What a sequence model was trained on."""
    if found.run is not None:
        return read_sequence_options(found.run).seq.task
    from rlseq.player.onnx_file import read_onnx_file

    return decode_sequence_spec(read_onnx_file(found.path).metadata[SEQUENCE_KEY], str(found.path)).task


def open_player(
    found: Located,
    imports: Sequence[str],
    env: str | MakeEnv | None,
    inputs: Sequence[str] | None,
    action_output: str | None,
    render_mode: str | None = None,
) -> tuple[OnnxPolicy, MakeEnv]:
    """Policy and environment of a located file; see `play` for the arguments.

    Raises:
        UsageError: another environment than the policy's is given, with other observations or actions.
    """
    from rlseq.player.onnx_policy import load_onnx

    env_id, more = split_id(env) if isinstance(env, str) else (None, ())
    typed = [*imports, *more]
    import_modules(typed)
    policy = load_onnx(found.policy_file(), env_id=env_id, inputs=inputs, action_output=action_output)
    if callable(env):
        return policy, env
    if env_id is None:
        return policy, maker(policy.spec.env, typed_imports=typed, render_mode=render_mode)
    spec = msgspec.structs.replace(policy.spec.env, id=env_id)
    make = maker(spec, typed_imports=typed, render_mode=render_mode)
    leaves, action = spaces_of(make, env_id)
    if (leaves, action) != (policy.spec.observation, policy.spec.action):
        raise UsageError(
            f"--env {env_id}: {found.name} was trained on {_briefly(policy.spec.observation, policy.spec.action)}, "
            f"this environment has {_briefly(leaves, action)}. Give one with the same observations and actions."
        )
    return policy, make


def _briefly(leaves: Sequence[Leaf], action: ActionSpec) -> str:
    observation = ", ".join(f"{leaf.name} {leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
    return f"{observation} and {action.n} actions from {action.start}"
