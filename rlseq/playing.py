"""A shipped policy made ready for use: its player and its environment, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from rlseq.envs.make import MakeEnv, import_modules, maker, spaces_of, split_id
from rlseq.errors import UsageError
from rlseq.locate import Located
from rlseq.spec import ActionSpec, Leaf

if TYPE_CHECKING:
    from rlseq.player.onnx_policy import OnnxPolicy


def open_player(
    found: Located,
    imports: Sequence[str],
    env: str | MakeEnv | None,
    inputs: Sequence[str] | None,
    action_output: str | None,
    render_mode: str | None = None,
) -> tuple[OnnxPolicy, MakeEnv]:
    """Policy and environment of a located file; see `rlseq.pipeline.play` for the arguments.

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
