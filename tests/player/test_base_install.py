"""The player needs the base install only, one thread, and no CPU while it waits (case X20)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tests import graphs

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("player", "envs")
    for path in (ROOT / "rlseq" / folder).glob("*.py")
    if path.name != "__init__.py"
)
BLOCK = """
import sys
ABSENT = {"torch", "onnx", "onnxscript", "tensorboard", "PIL", "imageio", "imageio_ffmpeg", "pygame"}
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


def run(code: str, *arguments: str) -> str:
    """Run code in a fresh interpreter and give what it printed."""
    script = textwrap.dedent(BLOCK) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # ONNX Runtime's warnings do not reach the terminal
    return done.stdout


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights = np.array([[0.0, 0.1], [0.0, 0.5], [0.0, 1.0], [0.0, 1.0]])
    path = tmp_path_factory.mktemp("base") / "policy.onnx"
    return graphs.save_linear(path, graphs.spec_of("CartPole-v1"), weights)


@pytest.mark.parametrize("module", MODULES)
def test_imports_without_torch_and_onnx(module: str) -> None:
    assert MODULES
    run(f"import {module}")


def test_plays_without_torch_and_onnx(policy: Path) -> None:
    code = """
        from rlseq.envs.make import maker
        from rlseq.player.native import rollout_native
        from rlseq.player.onnx_policy import load_onnx
        from rlseq.player.rollout import rollout
        policy = load_onnx(sys.argv[1])
        print(rollout(policy, maker(policy.spec.env), episodes=3, seed=0, num_envs=2).returns.mean())
        print(rollout_native(policy, policy.spec, episodes=3, seed=0, num_envs=2).returns.mean())
        assert not {"torch", "onnx"} & set(sys.modules)
    """
    single, native = map(float, run(code, str(policy)).split())
    assert single > 400 and native > 400


def test_an_idle_policy_uses_no_cpu_and_no_threads(policy: Path) -> None:
    """By default ONNX Runtime burns about 30 ms of CPU in spinning threads after every call."""
    code = """
        import os, time
        import numpy as np
        import onnxruntime
        from rlseq.player.onnx_policy import load_onnx
        from rlseq.spec import StepInput
        before = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0
        policy = load_onnx(sys.argv[1])
        step = StepInput((np.zeros((64, 4), np.float32),), np.zeros(64, np.float32), np.ones(64, bool))
        for _ in range(100):
            policy.act(step, ())
        after = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0
        used = []
        for _ in range(3):
            policy.act(step, ())
            begin = time.process_time()
            time.sleep(0.2)
            used.append(time.process_time() - begin)
        print(after - before, min(used))
    """
    threads, used = run(code, str(policy)).split()
    assert int(threads) == 0
    assert float(used) < 0.005  # seconds of CPU in 0.2 s


def test_sessions_are_made_with_one_thread_that_does_not_spin(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    from rlseq.player.onnx_policy import load_onnx

    made = []
    session = onnxruntime.InferenceSession

    def spy(*args: object, **kwargs: object) -> object:
        made.append(session(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(onnxruntime, "InferenceSession", spy)
    load_onnx(policy)
    options = made[0].get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"
    assert made[0].get_providers() == ["CPUExecutionProvider"]


def test_the_file_is_read_once(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked is what runs: exchanging the file after the check changes nothing."""
    import onnxruntime

    from rlseq.player.onnx_policy import load_onnx

    path = tmp_path / "policy.onnx"
    path.write_bytes(policy.read_bytes())
    session = onnxruntime.InferenceSession

    def exchanged(data: object, *args: object, **kwargs: object) -> object:
        assert isinstance(data, bytes)
        os.remove(path)
        path.write_bytes(b"something else")
        return session(data, *args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", exchanged)
    assert load_onnx(path)([0, 0, 0, 1]) == 1
