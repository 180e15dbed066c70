"""`rlseq info`: everything that a run or a policy says of itself, and whether its files are as they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rlseq.card_words import parity_words
from rlseq.cli.export import parity_rows
from rlseq.cli.inspect_sequence import signature_rows
from rlseq.cli.output import (
    Output,
    metric_rows,
    score,
    show_list,
    show_pairs,
    size,
    told,
    write_json,
)
from rlseq.cli.params import Imports, Json, PathArgument
from rlseq.errors import CorruptFile, RlseqError

if TYPE_CHECKING:
    from rlseq.locate import Located
    from rlseq.player.onnx_file import OnnxFile
    from rlseq.runs import Run
    from rlseq.sequence import SequenceSpec
    from rlseq.spec import PolicySpec


def info(path: PathArgument = None, imports: Imports = None, as_json: Json = False) -> None:
    """Show what a run or an exported file is: inputs, lineage, scores, parity, checksums, disk use.

    Every file is read and compared with the checksum recorded for it.

    Examples:

      rlseq info
      rlseq info cartpole-dqn
      rlseq info policy.onnx --json
    """
    out = Output(as_json)
    with out.working():
        from rlseq.locate import locate

        found = locate(path)
        facts = run_facts(found, imports or []) if found.run is not None else policy_facts(found)
    if as_json:
        write_json(facts)
        return
    show_pairs(_rows(facts))
    _show_files(facts)


def file_spec(path: Path) -> tuple[OnnxFile, PolicySpec | SequenceSpec | None]:
    """An .onnx file and the description inside; None if rlseq did not write it.

    Raises:
        CorruptFile, NewerFormat, RlseqError
    """
    from rlseq.player.onnx_file import read_onnx_file
    from rlseq.sequence import SEQUENCE_KEY, decode_sequence_spec
    from rlseq.spec import SPEC_KEY, decode_spec

    file = read_onnx_file(path)
    if SEQUENCE_KEY in file.metadata:
        return file, decode_sequence_spec(file.metadata[SEQUENCE_KEY], str(path))
    text = file.metadata.get(SPEC_KEY)
    return file, None if text is None else decode_spec(text, str(path))


def policy_facts(found: Located) -> dict[str, Any]:
    """What an agent or an .onnx file is."""
    from rlseq.files import sha256_file

    file, spec = file_spec(found.path)
    facts: dict[str, Any] = {"kind": found.kind, "name": found.name, "path": str(found.path)}
    facts |= _described(spec) if spec is not None else {"foreign": _ports(file)}
    facts["onnx"] = _onnx(file)
    facts["files"] = [_file(found.path, found.path.parent, sha256_file(found.path), None)]
    facts["bytes"] = len(file.data)
    return facts


def _described(spec: PolicySpec | SequenceSpec) -> dict[str, Any]:
    import msgspec

    described: dict[str, Any] = msgspec.to_builtins(spec)
    return described


def _onnx(file: OnnxFile) -> dict[str, Any]:
    return {"opset": file.opset, "ir_version": file.ir_version, "bytes": len(file.data)}


def _ports(file: OnnxFile) -> dict[str, list[str]]:
    """Inputs and outputs of a file that does not describe itself."""
    from rlseq.player.graph import open_graph

    graph = open_graph(file)
    return {
        "inputs": [str(port) for port in graph.inputs.values()],
        "outputs": [str(p) for p in graph.outputs.values()],
    }


def run_facts(found: Located, imports: Sequence[str]) -> dict[str, Any]:
    """What a run is; its environment is made if it has no policy.onnx yet that tells its inputs."""
    run = found.run
    assert run is not None
    config, summary = run.config(), run.summary()
    done, best = run.checkpoints(), run.best()
    facts: dict[str, Any] = {"kind": "run", "name": run.name, "path": str(run.path), "status": run.status()}
    if run.exported.exists():
        file, spec = file_spec(run.exported)
        facts |= _described(spec) if spec is not None else {}
        facts["onnx"] = _onnx(file)
    else:
        facts |= _from_options(config, imports)
    facts["algorithm"], facts["recipe"] = config.get("algorithm"), config.get("recipe")
    facts["lineage"] = facts.get("lineage") or run.lineage()
    facts["summary"] = summary
    facts["steps"] = int(done[-1].name) if done else 0
    facts["total_steps"] = config.get("options", {}).get("run", {}).get("steps")
    facts["checkpoints"] = [int(path.name) for path in done]
    facts["best_checkpoint"] = int(best.name) if best else None
    facts["resume"] = _resume(run, facts) if done else None
    facts["machine"] = {key: value for key, value in run.env().items() if key != "format_version"}
    facts["files"] = _files(run)
    facts["bytes"] = run.disk_bytes()
    return facts


def _from_options(config: Mapping[str, Any], imports: Sequence[str]) -> dict[str, Any]:
    """Environment, observation and actions of a run that has exported nothing yet."""
    import msgspec

    from rlseq.envs.make import maker, spaces_of
    from rlseq.spec import EnvSpec

    if config.get("algorithm") == "seq":
        return {
            "task": config["options"].get("seq", {}).get("task"),
            "model": config["options"].get("net", {}).get("core"),
        }
    env = config.get("options", {}).get("env", {})
    kept = {key: env[key] for key in ("id", "kwargs", "imports", "max_episode_steps", "fresh") if key in env}
    facts: dict[str, Any] = {"env": kept}
    try:
        spec = msgspec.convert(kept, EnvSpec)
        leaves, action = spaces_of(maker(spec, typed_imports=imports), spec.id)
        facts |= {"observation": msgspec.to_builtins(leaves), "action": msgspec.to_builtins(action)}
    except (RlseqError, msgspec.ValidationError) as error:
        facts["unknown"] = f"observation and actions, because the environment cannot be made: {error}"
    return facts


def _resume(run: Run, facts: Mapping[str, Any]) -> str:
    command = f"rlseq train {facts['algorithm']} --resume {run.path}"
    return command if facts["status"] != "finished" else f"{command} --steps {2 * max(1, facts['steps'])}"


def _files(run: Run) -> list[dict[str, Any]]:
    """Every file of a run with its checksum, and whether it is the recorded one."""
    from rlseq.files import sha256_file

    recorded = _recorded(run)
    paths = sorted(p for p in run.path.rglob("*") if p.is_file())
    return [_file(path, run.path, sha256_file(path), recorded) for path in paths]


def _recorded(run: Run) -> dict[Path, str | None]:
    """Checksums as recorded; None where the record itself is damaged."""
    from rlseq.checkpoints import MANIFEST, numbered, read_manifest
    from rlseq.files import sha256_file

    recorded: dict[Path, str | None] = {}
    for checkpoint in [*run.checkpoints(), *numbered(run.path / "best")]:
        try:
            files = read_manifest(checkpoint)["files"]  # it checks its own checksum
            recorded[checkpoint / MANIFEST] = sha256_file(checkpoint / MANIFEST)
            recorded |= {checkpoint / name: entry["sha256"] for name, entry in files.items()}
        except RlseqError:
            recorded[checkpoint / MANIFEST] = None
    try:
        policy = (run.summary() or {}).get("policy")
    except CorruptFile:
        recorded[run.path / "summary.json"] = None
    else:
        if isinstance(policy, dict) and policy.get("file"):
            recorded[run.path / str(policy["file"])] = policy.get("sha256")
    return recorded


def _file(path: Path, folder: Path, sha256: str, recorded: Mapping[Path, str | None] | None) -> dict[str, Any]:
    """`intact` is None for a file of which no checksum is recorded."""
    intact = None if recorded is None or path not in recorded else recorded[path] == sha256
    return {
        "file": path.relative_to(folder).as_posix(),
        "bytes": path.stat().st_size,
        "sha256": sha256,
        "intact": intact,
    }


def _rows(facts: Mapping[str, Any]) -> dict[str, str]:
    rows = {facts["kind"]: facts["name"], "path": facts["path"]}
    if facts["kind"] == "run":
        rows["status"] = f"{facts['status']}, {facts['steps']} of {facts['total_steps']} steps"
    if "foreign" in facts:
        rows["origin"] = "not written by rlseq; rlseq play needs --env, and --input and --action-output by name"
        rows["inputs"], rows["outputs"] = ("; ".join(facts["foreign"][key]) for key in ("inputs", "outputs"))
    rows |= _contract(facts)
    scores = facts.get("scores") or facts.get("summary")
    if scores and "task" in facts:
        rows |= metric_rows({"task": facts["task"], **scores})
    elif scores:
        rows["score"] = f"{score(scores)} over {scores.get('episodes')} episodes, seed {scores.get('seed')}"
    rows |= _parity(facts.get("parity") or {})
    for index, step in enumerate(facts.get("lineage") or ()):
        rows["lineage" if index == 0 else " " * index] = _step(step)
    if facts["kind"] == "run":
        best = facts["best_checkpoint"]
        rows["checkpoints"] = ", ".join(map(str, facts["checkpoints"])) + ("" if best is None else f"; best {best}")
        rows["resume"] = facts["resume"] or "-"
    if "onnx" in facts:
        onnx = facts["onnx"]
        rows["file format"] = f"ONNX, opset {onnx['opset']}, IR {onnx['ir_version']}, {size(onnx['bytes'])}"
    if facts.get("weights_sha256"):
        rows["weights"] = facts["weights_sha256"]
    rows["disk"] = size(facts["bytes"])
    return rows


def _parity(report: Mapping[str, Any]) -> dict[str, str]:
    """A parity report out of a file, which may be another tool's or changed."""
    try:
        return {"parity": parity_words(report)} if "lengths" in report else parity_rows(report)
    except (KeyError, TypeError, ValueError):
        return {"parity": "the file's report is not as rlseq writes it; see --json"}


def _contract(facts: Mapping[str, Any]) -> dict[str, str]:
    """Environment, inputs, actions."""
    rows = {}
    env = facts.get("env")
    if "task" in facts:
        rows["task"] = f"{facts['task']}, learnt by {facts['model']}"
    if "signature" in facts:
        rows |= signature_rows(facts["signature"], facts)
    if env:
        extra = "".join(f", {key} {env[key]}" for key in ("kwargs", "imports", "max_episode_steps") if env.get(key))
        rows["environment"] = f"{env.get('id')}{extra}"
    for index, leaf in enumerate(facts.get("observation") or ()):
        shape = f"{leaf['dtype']} {list(leaf['shape'])}"
        rows["observation" if index == 0 else f"{'':<{11 + index}}"] = f"{leaf['name']}: {leaf['kind']}, {shape}"
    action = facts.get("action")
    if action:
        rows["actions"] = f"{action['n']}, from {action['start']} to {action['start'] + action['n'] - 1}"
    if "unknown" in facts:
        rows["unknown"] = facts["unknown"]
    return rows


def _step(step: Mapping[str, Any]) -> str:
    """`train: algorithm dqn, env_id CartPole-v1, ...`."""
    return f"{step.get('step', '?')}: {told({key: value for key, value in step.items() if key != 'step'})}"


def _show_files(facts: Mapping[str, Any]) -> None:
    typer.echo()
    words = {True: "intact", False: "CHANGED", None: "-"}
    rows = [
        [entry["file"], size(entry["bytes"]), words[entry["intact"]], entry["sha256"][:16]] for entry in facts["files"]
    ]
    show_list(["file", "size", "recorded", "sha256 begins"], rows, right=("size",))
