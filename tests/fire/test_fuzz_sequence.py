"""Damaged sequence models: a clear refusal or a text, and nothing worse.

Each case has a number that decides everything about it; RLSEQ_FUZZ works as in `test_fuzz`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlseq.exporter.graph import write_graph
from rlseq.exporter.sequence import build_sequence_graph, with_sequence_spec
from tests.kind_graphs import MODELS, save
from tests.sequence_graphs import save_counting
from tests.sequences import small_network, spec_of

CASES = os.environ.get("RLSEQ_FUZZ", "240")
LIMIT_BYTES = 2 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_counting(tmp_path / "sound_counting.onnx")
    for name in MODELS:
        save(tmp_path / f"sound_{name}.onnx", name)
    for core in ("gpt", "lstm"):
        net = small_network(core)
        spec = spec_of(net, core)
        write_graph(with_sequence_spec(build_sequence_graph(net, spec), spec), tmp_path / f"sound_{core}.onnx")
    return tmp_path


def wrong_with(case: dict[str, Any]) -> str | None:
    """What is not as it should be."""
    if "message" not in case:
        return "it brought the process down, or hung"
    message = str(case["message"])
    if "Traceback" in message:
        return message
    if case["rss"] > LIMIT_BYTES:
        return f"it took {case['rss'] >> 20} MiB of memory"
    if message and "damaged.onnx" not in message and "its weights are broken" not in message:
        return f"the message does not name the file: {message}"
    if len(message) > 1_500 or len(message.splitlines()) > 4:
        return f"the message is no paragraph for a user: {message}"
    return None


def test_no_damaged_sequence_model_does_worse_than_be_refused(folder: Path) -> None:
    first, colon, last = CASES.partition(":")
    begin, end = (int(first), int(last)) if colon else (0, int(first))
    words = [sys.executable, "-m", "tests.fire.sequence_cases", str(folder), str(begin), str(end)]
    ended = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280)
    cases: dict[int, dict[str, Any]] = {}
    for line in ended.stdout.splitlines():
        told = json.loads(line)
        cases.setdefault(told["number"], {}).update(told)
    wrong = [f"RLSEQ_FUZZ={n}:{n + 1}: {said}\n  {case}" for n, case in cases.items() if (said := wrong_with(case))]
    assert not wrong, f"{len(wrong)} of {len(cases)} cases:\n" + "\n".join(wrong)
    assert ended.returncode == 0 and len(cases) == end - begin, ended.stderr
    if len(cases) >= 100:  # most damage is noticed, and some does no harm
        assert 0.5 * len(cases) <= sum(bool(case["message"]) for case in cases.values()) < len(cases)
