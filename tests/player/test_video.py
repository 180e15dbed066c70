"""Films: GIF and MP4."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlseq.envs.make import maker
from rlseq.errors import MissingExtra, RlseqError, UsageError
from rlseq.pipeline import play
from rlseq.player.rollout import rollout
from rlseq.player.video import render_fps, rollout_video, video_writer
from rlseq.spec import EnvSpec
from tests import graphs
from tests.player.test_rollout import Fixed

Image = pytest.importorskip("PIL.Image")
ffmpeg = pytest.importorskip("imageio_ffmpeg")


def moving(count: int, size: tuple[int, int] = (20, 30)) -> list[np.ndarray]:
    """A bright square on its way."""
    frames = []
    for i in range(count):
        frame = np.full((*size, 3), 30, np.uint8)
        frame[4:8, i % 20 : i % 20 + 4] = (200, i % 3 * 50, 90)
        frames.append(frame)
    return frames


def read_gif(path: Path) -> tuple[list[np.ndarray], list[int], dict[str, Any]]:
    with Image.open(path) as image:
        frames, durations = [], []
        for index in range(image.n_frames):
            image.seek(index)
            frames.append(np.asarray(image.convert("RGB")))
            durations.append(image.info["duration"])
        return frames, durations, dict(image.info)


def read_mp4(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Size, frames a second and codec as ffmpeg reports them, and the frames."""
    command = [ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    line = next(line for line in done.stderr.decode().splitlines() if "Video:" in line)
    width, height = map(int, re.search(r"(\d+)x(\d+)", line.partition("yuv")[2]).groups())
    frames = np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)
    return {"size": (width, height), "line": line}, list(frames)


def write(path: Path, frames: list[np.ndarray], fps: float) -> None:
    with video_writer(path, fps) as add:
        for frame in frames:
            add(frame)


@pytest.mark.parametrize("fps", [5, 10, 25, 50])
def test_gif_shows_every_frame_for_its_time(fps: int, tmp_path: Path) -> None:
    frames = moving(12)
    write(tmp_path / "a.gif", frames, fps)
    shown, durations, info = read_gif(tmp_path / "a.gif")
    assert len(shown) == 12 and info["loop"] == 0  # for ever
    for wanted, got in zip(frames, shown, strict=True):
        np.testing.assert_array_equal(wanted, got)
    assert durations == [1000 / fps] * 12


@pytest.mark.parametrize("fps", [7, 24, 29.97, 30, 60, 240])
def test_gif_keeps_the_time_as_a_whole(fps: float, tmp_path: Path) -> None:
    """Delays are multiples of 10 ms and at least 20: rounded, and left out where there are too many."""
    frames = moving(121)
    write(tmp_path / "a.gif", frames, fps)
    shown, durations, _ = read_gif(tmp_path / "a.gif")
    assert abs(sum(durations) - 1000 * 121 / fps) <= 40  # the last frame is shown for 20 ms, come what may
    assert min(durations) >= 20 and all(duration % 10 == 0 for duration in durations)
    np.testing.assert_array_equal(shown[-1], frames[-1])
    assert len(shown) == 121 if fps <= 50 else len(shown) < 121


def test_gif_prolongs_a_frame_that_does_not_change(tmp_path: Path) -> None:
    first, second = moving(2)
    write(tmp_path / "a.gif", [first, first, first, second, second], 10)
    shown, durations, _ = read_gif(tmp_path / "a.gif")
    assert len(shown) == 2 and durations == [300, 200]
    np.testing.assert_array_equal(shown[1], second)


def test_gif_of_one_frame_and_of_many_colours(tmp_path: Path) -> None:
    frame = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    write(tmp_path / "a.gif", [frame], 50)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.size == (50, 40)
        got = np.asarray(image.convert("RGB")).astype(int)
    assert np.abs(got - frame).mean() < 20  # 256 colours instead of 2000


def test_gif_may_be_overwritten_in_place_by_the_environment(tmp_path: Path) -> None:
    buffer = np.zeros((8, 8, 3), np.uint8)
    with video_writer(tmp_path / "a.gif", 60) as add:
        for i in range(7):
            buffer[:] = i * 30
            add(buffer)
        buffer[:] = 255
    shown, _, _ = read_gif(tmp_path / "a.gif")
    assert shown[-1][0, 0, 0] == 180


@pytest.mark.parametrize("size", [(20, 30), (21, 31), (64, 64)])
def test_mp4(size: tuple[int, int], tmp_path: Path) -> None:
    frames = moving(25, size)
    write(tmp_path / "a.mp4", frames, 25)
    meta, shown = read_mp4(tmp_path / "a.mp4")
    height, width = size
    assert meta["size"] == (width + width % 2, height + height % 2)  # odd sizes are padded
    assert all(word in meta["line"] for word in ("h264", "yuv420p", " 25 fps"))
    assert len(shown) == 25
    assert np.abs(shown[-1][:height, :width].astype(int) - frames[-1]).mean() < 12


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_nothing_is_left_after_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"older")

    def fail() -> None:
        with video_writer(tmp_path / name, 30) as add:
            for frame in moving(3):
                add(frame)
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"older"


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_refusals(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with pytest.raises(RlseqError, match="the environment rendered no frame"):
        write(path, [], 30)
    with pytest.raises(RlseqError, match=r"a frame has shape \(10, 10, 3\), the first had \(20, 30, 3\)"):
        write(path, [*moving(1), np.zeros((10, 10, 3), np.uint8)], 30)
    for frame in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.float32)):
        with pytest.raises(RlseqError, match=r"a picture is uint8 \[height, width, 3\]"):
            write(path, [frame], 30)
    with pytest.raises(RlseqError, match="cannot write"):
        write(tmp_path / "nowhere" / name, moving(1), 30)
    assert list(tmp_path.iterdir()) == []


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a film ends in \.gif or \.mp4"):
        write(tmp_path / "a.webm", moving(1), 30)
    with pytest.raises(UsageError, match="0 frames a second is not possible"):
        write(tmp_path / "a.gif", moving(1), 0)


@pytest.mark.parametrize(("name", "module"), [("a.gif", "PIL"), ("a.mp4", "imageio_ffmpeg")])
def test_a_missing_extra_names_the_command(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in [key for key in sys.modules if key.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not there
    with pytest.raises(MissingExtra, match=rf'needs the package {module}.*: pip install "rlseq\[video\]"'):
        write(tmp_path / name, moving(1), 30)
    assert list(tmp_path.iterdir()) == []


def test_render_modes() -> None:
    assert render_fps(maker(EnvSpec(id="toy/Image-v0")), "toy/Image-v0", "rgb_array") == 30.0
    assert render_fps(maker(EnvSpec(id="CartPole-v1")), "CartPole-v1", "human") == 50.0
    with pytest.raises(UsageError, match="toy/Image-v0 cannot be rendered as 'human': its render modes are rgb_array"):
        render_fps(maker(EnvSpec(id="toy/Image-v0")), "toy/Image-v0", "human")
    with pytest.raises(UsageError, match="toy/Blind-v0 cannot be rendered as 'rgb_array': its render modes are none"):
        render_fps(maker(EnvSpec(id="toy/Blind-v0")), "toy/Blind-v0", "rgb_array")


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_filming_changes_no_episode(suffix: str, tmp_path: Path) -> None:
    spec = graphs.spec_of("toy/Image-v0")
    policy, path = Fixed(spec), tmp_path / f"film.{suffix}"
    filmed = rollout_video(policy, maker(spec.env, render_mode="rgb_array"), path, episodes=3, seed=0, num_envs=2)
    plain = rollout(policy, maker(spec.env), episodes=3, seed=0, num_envs=2)
    assert filmed.returns.tolist() == plain.returns.tolist()
    frames = 2 * 7  # episodes 0 and 2, six steps and a reset each
    if suffix == "gif":
        _, durations, _ = read_gif(path)
        assert sum(durations) == pytest.approx(1000 * frames / 30, abs=10)
    else:
        assert len(read_mp4(path)[1]) == frames
    with pytest.raises(UsageError, match="its render modes are none"):
        rollout_video(policy, maker(EnvSpec(id="toy/Blind-v0")), path, episodes=1, seed=0)


def test_an_environment_that_cannot_render_after_all_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_screen(self: object) -> None:
        raise RuntimeError("no screen")

    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.render", no_screen)
    with pytest.raises(RlseqError, match=r"could not be rendered: RuntimeError: no screen.*--render"):
        play("cartpole-dqn", episodes=1, render="gif", out=tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())
