"""Films of an environment: GIF or MP4 from its `rgb_array` frames, written as they come (extra `video`)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from rlseq.envs.make import MakeEnv
from rlseq.errors import RlseqError, UsageError, require
from rlseq.files import explained, fsync_folder
from rlseq.player.gif import GifWriter
from rlseq.player.rollout import Rollout, rollout
from rlseq.spec import Policy

DEFAULT_FPS = 30.0  # for environments that do not say
SUFFIXES = (".gif", ".mp4")
Add = Callable[[np.ndarray], None]


def render_fps(make: MakeEnv, env_id: str, mode: str) -> float:
    """Refuse an environment that has not the render mode; else its frames a second.

    Args:
        make: makes it, in any render mode.
        env_id: for messages.
        mode: `rgb_array` for films, `human` for a window.

    Raises:
        UsageError: names the render modes it has.
    """
    env = make()
    try:
        modes = list(env.metadata.get("render_modes") or [])
        fps = env.metadata.get("render_fps") or DEFAULT_FPS
    finally:
        env.close()
    if mode not in modes:
        raise UsageError(
            f"{env_id} cannot be rendered as {mode!r}: its render modes are {', '.join(map(str, modes)) or 'none'}. "
            "Leave --render out to play without pictures."
        )
    return float(fps)


def rollout_video(
    policy: Policy[Any],
    make: MakeEnv,
    path: Path,
    *,
    episodes: int,
    seed: int,
    num_envs: int = 1,
    fresh: bool = False,
) -> Rollout:
    """Play as `rollout` does and film the episodes of environment 0.

    Args:
        policy, episodes, seed, num_envs, fresh: as for `rollout`.
        make: makes an environment with the render mode rgb_array.
        path: a .gif or .mp4.

    Raises:
        UsageError: the environment has no such render mode, or the path another ending.
        MissingExtra: the package that writes the file is not installed.
        RlseqError: as `rollout` and `video_writer`.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # films need no screen, and SDL complains where there is none
    fps = render_fps(make, policy.spec.env.id, "rgb_array")
    with video_writer(path, fps) as add:
        return rollout(
            policy,
            make,
            episodes=episodes,
            seed=seed,
            num_envs=num_envs,
            fresh=fresh,
            on_frame=lambda env, episode, frame: add(frame),
        )


@contextlib.contextmanager
def video_writer(path: Path, fps: float) -> Iterator[Add]:
    """Write a film; it appears under its name once it is complete, and not at all after an error.

    Args:
        path: ends in .gif or .mp4.
        fps: frames a second.

    Yields:
        A function that appends a frame `[H, W, 3]` uint8. All frames must have the size of the first.

    Raises:
        UsageError: another ending.
        MissingExtra: the package that writes it is not installed.
        RlseqError: no frames came, a frame is no picture, or the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: a film ends in {' or '.join(SUFFIXES)}.")
    if not fps > 0:
        raise UsageError(f"{path}: {fps} frames a second is not possible.")
    open_writer = _gif if suffix == ".gif" else _mp4
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{suffix}")
    shape: tuple[int, ...] = ()
    with explained(path, "write"):
        try:
            with open_writer(temporary, fps) as add:

                def checked(frame: np.ndarray) -> None:
                    nonlocal shape
                    if not shape:
                        shape = _shape_of(frame, path)
                    elif frame.shape != shape:
                        raise RlseqError(f"{path}: a frame has shape {frame.shape}, the first had {shape}.")
                    add(frame)

                yield checked
                if not shape:
                    raise RlseqError(f"{path}: the environment rendered no frame.")
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_folder(path.parent)


def _shape_of(frame: np.ndarray, path: Path) -> tuple[int, ...]:
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise RlseqError(f"{path}: a frame is {frame.dtype} {frame.shape}; a picture is uint8 [height, width, 3].")
    return frame.shape


@contextlib.contextmanager
def _gif(path: Path, fps: float) -> Iterator[Add]:
    require("PIL", "writing a GIF")
    from PIL import Image

    with open(path, "wb") as file:
        writer = GifWriter(file, Image, fps)
        yield writer.add
        writer.finish()
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _mp4(path: Path, fps: float) -> Iterator[Add]:
    ffmpeg = require("imageio_ffmpeg", "writing an MP4")
    path.touch()  # a folder that is missing or not writable is reported in our own words
    process: subprocess.Popen[bytes] | None = None

    def add(frame: np.ndarray) -> None:
        nonlocal process
        height, width = frame.shape[:2]
        # The colour format yuv420p, which every player knows, has one colour for two by two pixels.
        even = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if process is None:
            process = _ffmpeg(ffmpeg.get_ffmpeg_exe(), path, even.shape[1], even.shape[0], fps, log)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has given up: its exit code and message are read at the end
            process.stdin.write(np.ascontiguousarray(even).data)

    with tempfile.TemporaryFile() as log:
        try:
            yield add
            if process is not None:
                process.communicate()
                log.seek(0)
                if process.returncode:
                    raise RlseqError(f"ffmpeg could not write the film: {log.read().decode(errors='replace').strip()}")
        finally:
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate()


def _ffmpeg(program: str, path: Path, width: int, height: int, fps: float, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start ffmpeg; it reads raw frames from its standard input."""
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
    target = ["-pix_fmt", "yuv420p", "-crf", "18", "-movflags", "+faststart", str(path)]
    command = [program, "-y", "-loglevel", "error", *source, *target]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log)
