"""Describing an .onnx file of another tool: inputs and outputs are named by hand, the spaces are the environment's."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rlseq.envs.make import import_modules, maker, spaces_of, split_id
from rlseq.errors import UsageError, did_you_mean
from rlseq.player.graph import Graph, Port, fits, head_port
from rlseq.player.onnx_file import OnnxFile
from rlseq.spec import EnvSpec, Leaf, PolicySpec


def typed_env(env_id: str) -> EnvSpec:
    """The environment a user typed; `module:Env-v0` imports the module, which only a user may ask for.

    Raises:
        UsageError: the module does not exist or fails.
    """
    name, modules = split_id(env_id)
    import_modules(modules)
    return EnvSpec(id=name, imports=modules)


def foreign_spec(
    file: OnnxFile, graph: Graph, env_id: str | None, inputs: Sequence[str] | None, action_output: str | None
) -> PolicySpec:
    """Describe a file without rlseq metadata.

    Args:
        file: the file.
        graph: of it.
        env_id: the environment it acts in.
        inputs: one input for each part of the observation, in the order of the environment's space. May be left out if
            there is one of each.
        action_output: float `[B, n]` (action values, the largest is chosen) or integer `[B]` (actions in the
            environment's numbering). May be left out if there is only one.

    Raises:
        UsageError: something is missing or does not fit; graph and environment are both named.
    """
    if env_id is None:
        raise UsageError(
            f"{file.path} was not written by rlseq: it does not say which environment it plays. It has "
            f"{_signature(graph)}. Say it by hand: --env ID --input NAME --action-output NAME"
        )
    env = typed_env(env_id)
    leaves, action = spaces_of(maker(env), env.id)
    names = list(inputs) if inputs is not None else list(graph.inputs) if len(graph.inputs) == 1 else []
    _check_names(file, graph, leaves, names, env.id)
    output = action_output or (next(iter(graph.outputs)) if len(graph.outputs) == 1 else None)
    if output is None or output not in graph.outputs:
        known = did_you_mean(output, graph.outputs) if output else ""
        raise UsageError(
            f"{file.path}: say with --action-output NAME which output decides.{known} It has {_signature(graph)}."
        )
    observation = tuple(_fed_as(file, leaf, graph.inputs[name]) for leaf, name in zip(leaves, names, strict=True))
    wanted, found = head_port(output, graph.outputs[output].dtype, action.n), graph.outputs[output]
    if not fits(wanted, found, fixed_batch=True):
        raise UsageError(
            f"{file.path}: the output {found} is neither action values, float32 [batch, {action.n}], nor actions, "
            f"int64 [batch], for the {action.n} actions of {env.id}. It has {_signature(graph)}."
        )
    return PolicySpec(algorithm="foreign", env=env, observation=observation, action=action, outputs=(output,))


def _check_names(file: OnnxFile, graph: Graph, leaves: Sequence[Leaf], names: list[str], env_id: str) -> None:
    for name in names:
        if name not in graph.inputs:
            raise UsageError(
                f"{file.path} has no input {name!r}.{did_you_mean(name, graph.inputs)} It has {_signature(graph)}."
            )
    unfed = set(graph.inputs) - set(names)
    if len(names) != len(leaves) or unfed or len(set(names)) != len(names):
        parts = ", ".join(f"{leaf.name}: {leaf.dtype} {list(leaf.shape)}" for leaf in leaves)
        raise UsageError(
            f"{file.path}: name one input for each part of the observation of {env_id} ({parts}), in this order: "
            f"{' '.join(['--input NAME'] * len(leaves))}. Given: {', '.join(names) or 'none'}. It has "
            f"{_signature(graph)}."
        )


def _fed_as(file: OnnxFile, leaf: Leaf, port: Port) -> Leaf:
    """The leaf under the graph's name and dtype; raw numbers go in, whatever preprocessing the graph does itself."""
    fed = msgspec.structs.replace(leaf, name=port.name, dtype=port.dtype, scale=1.0)
    wanted = Port(port.name, port.dtype, ("batch", *leaf.shape))
    if not fits(wanted, port, fixed_batch=True) or port.dtype.startswith(("tensor", "seq", "map", "opt", "sparse")):
        raise UsageError(
            f"{file.path}: the input {port} does not take the environment's observation {leaf.name}: {leaf.dtype} "
            f"{list(leaf.shape)} as one row of a batch."
        )
    return fed


def _signature(graph: Graph) -> str:
    inputs, outputs = ("; ".join(map(str, ports.values())) or "none" for ports in (graph.inputs, graph.outputs))
    return f"inputs {inputs} and outputs {outputs}"
