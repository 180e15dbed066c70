"""The published results, `rlseq/bench/results.json`, and the rule that keeps them true.

A number belongs to the commit on which it was measured. It stays true while nothing changes since but README, the
agents' cards, pictures, `.onnx` files and the results themselves; after any other change it is stale, and has to be
measured again. The standard library is all that this module needs: `.ci/results` runs it without the rest.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from rlseq.bench.measure import rate_text
from rlseq.errors import RlseqError, UsageError
from rlseq.machine import git

RESULTS_FORMAT = 1
LARGE = 1e5  # a ratio of which only the size matters
RESULTS = "rlseq/bench/results.json"
NAMED = 3  # files of a stale result
# What may change after a measurement: none of it is run by one. `*` stands for slashes too.
HARMLESS = ("README.md", RESULTS, "agents/*/card.md", "agents/*/card.json", "*.png", "*.gif", "*.onnx")
ROW_KEYS = ("name", "command", "commit", "machine", "repeats", "ours", "peer", "ratio", "spread")
SIDE_KEYS = (
    "name",
    "version",
    "seconds",
    "median",
    "spread",
    "steps_per_second",
    "updates",
    "split",
    "loss",
    "bytes",
    "error",
    "metric",
    "score",
)


class Finding(NamedTuple):
    """What is to be said of one result.

    Attributes:
        what: the row's or the card's name.
        broken: its commit is none that this history holds.
        text: why it is broken, or which files changed since.
    """

    what: str
    broken: bool
    text: str


def root() -> Path:
    """The source tree that this module is in."""
    return Path(__file__).resolve().parents[2]


def read_rows(tree: Path) -> list[dict[str, Any]]:
    """The published rows.

    Raises:
        RlseqError: the file is missing or damaged.
    """
    path = tree / RESULTS
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        rows, version = value["rows"], value["format_version"]
        good = version == RESULTS_FORMAT and all(key in row for row in rows for key in ROW_KEYS)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RlseqError(f"{path} cannot be read: {type(error).__name__}: {error}") from None
    if not good:
        raise RlseqError(
            f"{path} is no list of results in format_version {RESULTS_FORMAT}: each row needs {', '.join(ROW_KEYS)}."
        )
    return list(rows)


def rows_of(report: Mapping[str, Any], commit: str, date: str) -> list[dict[str, Any]]:
    """The rows that a benchmark's report comes to: one for each of its measurements.

    Raises:
        UsageError: it compares with nobody.
    """
    measurements = report.get("measurements") or {"": report}
    rows = []
    for part, one in measurements.items():
        if one["ratio"] is None:
            raise UsageError(f"--publish: bench {report['name']} compared with nobody; leave --peer none out.")
        rows.append(
            {
                "name": f"{report['name']}-{part}" if part else report["name"],
                "what": one["what"],
                "unit": one["unit"],
                "command": report["command"],
                "commit": commit,
                "machine": report["machine"],
                "versions": report["versions"],
                "repeats": report["repeats"],
                "ours": {key: one["ours"][key] for key in SIDE_KEYS if key in one["ours"]},
                "peer": {key: one["peer"][key] for key in SIDE_KEYS if key in one["peer"]},
                "ratio": one["ratio"],
                "spread": one["spread"],
                "date": date,
            }
        )
    return rows


def merged(rows: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with new ones added; a row of the same name and command is replaced where it stands."""
    by_key = {(row["name"], row["command"]): dict(row) for row in rows}
    by_key |= {(row["name"], row["command"]): dict(row) for row in new}
    return list(by_key.values())


def clean_commit(tree: Path) -> str:
    """The commit that a measurement of this tree belongs to.

    Raises:
        UsageError: the tree is no repository, or differs from its commit in more than README, cards and results.
    """
    if not (tree / ".git").exists():
        raise UsageError(f"--publish: {tree} is no git checkout; clone the repository and pip install -e it.")
    entries = _git(tree, "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z").split("\0")
    changed = [entry[3:] for entry in entries if entry and not harmless(entry[3:])]
    if changed:
        raise UsageError(f"--publish: {_some(changed)} differ from the commit. Commit first: a result belongs to one.")
    return _git(tree, "rev-parse", "--short=10", "HEAD").strip()


def publish(report: Mapping[str, Any], tree: Path, commit: str) -> Path:
    """Write the report's rows into the tree's results; gives the file.

    Args:
        report: from `benches.run`.
        tree: the source tree.
        commit: from `clean_commit`, before the measurement.

    Raises:
        UsageError: the tree changed meanwhile, or the report compares with nobody.
    """
    if (now := clean_commit(tree)) != commit:
        raise UsageError(f"--publish: the commit changed from {commit} to {now} while it was measured. Measure again.")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows = merged(read_rows(tree), rows_of(report, commit, date))
    path = tree / RESULTS
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = json.dumps({"format_version": RESULTS_FORMAT, "rows": rows}, indent=2, allow_nan=False)
    temporary.write_text(text + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return path


def harmless(path: str) -> bool:
    """Whether a file, by its path in the tree, may change without making a measurement stale."""
    return any(fnmatchcase(path, pattern) for pattern in HARMLESS)


def check(tree: Path) -> list[Finding]:
    """Every published row and card whose number the tree no longer stands for.

    Raises:
        RlseqError: a file of results cannot be read, or the tree is no repository.
    """
    found = []
    for what, commit in _claims(tree):
        finding = _check(tree, what, commit)
        if finding is not None:
            found.append(finding)
    return found


def _claims(tree: Path) -> list[tuple[str, Any]]:
    """What states a commit: `(name, commit)`."""
    claims = [(f"{row['name']} ({row['command']})", row["commit"]) for row in read_rows(tree)]
    for card in sorted(tree.glob("agents/*/card.json")):
        try:
            data = json.loads(card.read_text(encoding="utf-8"))
            commit = data["commit"] if "commit" in data else data["machine"]["commit"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RlseqError(f"{card} states no commit: {type(error).__name__}: {error}") from None
        claims.append((card.relative_to(tree).as_posix(), commit))
    return claims


def _check(tree: Path, what: str, commit: Any) -> Finding | None:
    # Anything else (a branch, HEAD~3, 1234+changes) names no fixed state of the files.
    if not isinstance(commit, str) or not 7 <= len(commit) <= 40 or set(commit) - set("0123456789abcdef"):
        return Finding(what, True, f"{commit!r} is no commit: it was measured on files that no commit holds.")
    if not _answers(tree, "cat-file", "-e", f"{commit}^{{commit}}"):
        return Finding(what, True, f"there is no commit {commit} in this history (a shallow clone lacks old ones).")
    if not _answers(tree, "merge-base", "--is-ancestor", commit, "HEAD"):
        return Finding(what, True, f"commit {commit} is no ancestor of HEAD.")
    names = _git(tree, "diff", "--name-only", "--no-renames", "-z", commit, "HEAD").split("\0")
    changed = [name for name in names if name and not harmless(name)]
    if not changed:
        return None
    named = ", ".join(changed[:NAMED]) + (f" and {len(changed) - NAMED} more" if len(changed) > NAMED else "")
    return Finding(what, False, f"{len(changed)} file{'s' * (len(changed) != 1)} changed since {commit}: {named}")


def _answers(tree: Path, *arguments: str) -> bool:
    return subprocess.run(["git", *arguments], cwd=tree, capture_output=True, timeout=60).returncode == 0


def _git(tree: Path, *arguments: str) -> str:
    try:
        return git(tree, *arguments)
    except (OSError, subprocess.SubprocessError) as error:
        raise RlseqError(f"git {' '.join(arguments)} in {tree} failed: {error}") from None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """README's table of the published rows; empty without any."""
    if not rows:
        return ""
    lines = ["| measured | command | rlseq | against | ratio (of pairs) | commit |", "|---|---|---|---|---|---|"]
    lines += [_line(row) for row in rows]
    machines = dict.fromkeys(f"{row['machine']['cpu']}, {row['machine']['cores']} cores" for row in rows)
    return "\n".join([*lines, "", f"Measured on: {'; '.join(machines)}."])


def _line(row: Mapping[str, Any]) -> str:
    low, high = row["spread"]
    peer = row["peer"]
    who = " ".join(str(peer[key]) for key in ("name", "version") if peer.get(key))
    unit = row.get("unit", "steps")  # the only one there once was
    cells = (
        row.get("what", row["name"]),
        f"`{row['command']}`",
        side_text(row["ours"], unit),
        f"{who}: {side_text(peer, unit)}",
        f"{ratio_text(row['ratio'])} ({ratio_text(low)} to {ratio_text(high)}), repeats: {row['repeats']}",
        f"`{row['commit']}`",
    )
    return f"| {' | '.join(cells)} |"


def ratio_text(ratio: float) -> str:
    """`2.41`; `3.2e+09` where only its size matters."""
    return f"{ratio:.2f}" if ratio < LARGE else f"{ratio:.1e}"


def score_text(side: Mapping[str, Any]) -> str:
    """What seeds came to: `exact_match 0.9980 (0.9970 to 0.9990), 61.20 s`."""
    scores = side["score"]
    text = f"{side['metric']} {sum(scores) / len(scores):.4g}"
    if len(scores) > 1:
        text += f" ({min(scores):.4g} to {max(scores):.4g})"
    return f"{text}, {side['median']:.2f} s" if "median" in side else text


def side_text(side: Mapping[str, Any], unit: str) -> str:
    """What one side did: `0.41 s, 24,647 steps/s`, `31.20 s, loss 1.853 to 1.861`, `12.5 MiB` or `1.2e-15 off`."""
    if "bytes" in side:
        return f"{side['bytes'] / 2**20:.1f} MiB"
    if "error" in side:
        return f"{side['error']:.1e} off"
    if "score" in side:
        return score_text(side)
    text = f"{side['median']:.2f} s{rate_text(side['steps_per_second'], unit)}"
    if "loss" in side:
        text += f", loss {min(side['loss']):.3f} to {max(side['loss']):.3f}"
    return text
