"""The benchmarks by name, and what every one of them has: repeats, a peer, a machine, a commit."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlseq.bench.ddp import bench_ddp
from rlseq.bench.dqn import bench_dqn
from rlseq.bench.gpu import bench_gpu
from rlseq.bench.measure import Tell
from rlseq.bench.peers import find_peer
from rlseq.bench.play import bench_play
from rlseq.bench.seq import bench_seq
from rlseq.bench.tasks import bench_tasks
from rlseq.errors import UsageError, did_you_mean
from rlseq.machine import describe_machine

BENCHES: dict[str, Callable[..., dict[str, Any]]] = {
    "dqn": bench_dqn,
    "play": bench_play,
    "seq": bench_seq,
    "ddp": bench_ddp,
    "tasks": bench_tasks,
    "gpu": bench_gpu,
}
COMMON = ("tell", "repeats")
PEER = "sb3"  # unless another is given; a benchmark without the argument `peer` brings its own
FLAGS = {"values": "--set"}


def run(
    name: str,
    tell: Tell,
    *,
    repeats: int = 3,
    peer: str | None = None,
    command: str | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Run a benchmark.

    Args:
        name: a key of `BENCHES`.
        tell: takes lines of progress.
        repeats: how often each side runs, in turn.
        peer: a key of `peers.PEERS`, or `none`; None: `PEER`, if the benchmark is against another library.
        command: by which it can be run again; None: as this process was started.
        given: the benchmark's own arguments; None counts as not given.

    Returns:
        name, command, commit, machine, versions, repeats, and what the benchmark measured.

    Raises:
        UsageError: an unknown benchmark, peer or argument, or no repeats.
        MissingExtra: the peer is not installed.
    """
    if name not in BENCHES:
        raise UsageError(
            f"there is no benchmark {name!r}.{did_you_mean(name, BENCHES)} There is: {', '.join(BENCHES)}."
        )
    if repeats < 1:
        raise UsageError(f"--repeats {repeats}: give at least 1.")
    arguments = {key: value for key, value in {**given, "peer": peer}.items() if value is not None}
    _check_arguments(name, arguments)
    found = None
    if "peer" in inspect.signature(BENCHES[name]).parameters:
        arguments["peer"] = found = find_peer(peer or PEER)
    machine = describe_machine()
    measured = BENCHES[name](tell, repeats=repeats, **arguments)
    versions = {"rlseq": machine["rlseq"], "python": machine["python"], **machine["packages"]}
    if found is not None:
        versions[found.name] = found.version()
    return {
        "name": name,
        "command": command or machine["command"],
        "commit": machine["commit"],
        "machine": {key: machine[key] for key in ("platform", "cpu", "cores")},
        "versions": versions,
        "repeats": repeats,
        **measured,
    }


def _check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    takes = [key for key in inspect.signature(BENCHES[name]).parameters if key not in COMMON]
    for key in arguments:
        if key not in takes:
            own = [*(other for other in takes if other != "peer"), "repeats", *(["peer"] if "peer" in takes else [])]
            flags = ", ".join(map(_flag, own))
            raise UsageError(f"bench {name} has no {_flag(key)}; it takes {flags}.")


def _flag(key: str) -> str:
    return FLAGS.get(key, f"--{key}")


def command_of(name: str, assignments: list[str], given: Mapping[str, Any]) -> str:
    """The command line that measures this again: what was typed, without what only concerns the output.

    Data is named without its folder, which is nobody's business and may be another one elsewhere.
    """
    words = ["rlseq", "bench", name]
    for key, value in given.items():
        if value is not None:
            words += [_flag(key), Path(value).name if key == "data" else str(value)]
    for assignment in assignments:
        words += ["--set", assignment]
    return shlex.join(words)
