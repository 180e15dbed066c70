"""Writing a GIF frame by frame, so that a long video needs the memory of two frames.

Pillow encodes each picture (its own multi-frame writer keeps all of them until the end); here the encoded pictures are
put one behind the other as GIF89a says (https://www.w3.org/Graphics/GIF/spec-gif89a.txt): only the changed rectangle of
a frame is stored, and a frame like the one before only prolongs it.
"""

from __future__ import annotations

import io
from typing import IO, Any

import numpy as np

LOOP_FOREVER = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
SHORTEST = 2  # hundredths of a second; browsers show anything shorter for a tenth
LONGEST = 65_535


class GifWriter:
    """Streams frames into an open file.

    Args:
        file: to write to.
        image: the module `PIL.Image`.
        fps: frames a second. Delays are whole hundredths of a second: they are rounded so that the sum stays right, and
            frames too short to be shown are left out.
    """

    def __init__(self, file: IO[bytes], image: Any, fps: float) -> None:
        self._file = file
        self._image = image
        self._fps = fps
        self._count = 0
        self._shown: np.ndarray | None = None
        self._left_out: np.ndarray | None = None
        self._pending = b""
        self._pending_since = 0

    def add(self, frame: np.ndarray) -> None:
        """Append a frame `[H, W, 3]` uint8; all must have the size of the first."""
        now = round(100 * self._count / self._fps)
        self._count += 1
        self._left_out = None
        if self._shown is None:
            height, width = frame.shape[:2]
            self._file.write(b"GIF89a" + _short(width) + _short(height) + b"\x00\x00\x00" + LOOP_FOREVER)
            self._shown = frame.copy()
            self._pending = self._encoded(frame, 0, 0)
        elif now - self._pending_since >= SHORTEST:
            self._show(frame, now)
        else:
            self._left_out = frame.copy()

    def _show(self, frame: np.ndarray, now: int) -> None:
        assert self._shown is not None
        changed = (frame != self._shown).any(2)
        if not changed.any():
            return
        rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
        top, left = int(rows[0]), int(columns[0])
        self._flush(now)
        self._pending = self._encoded(frame[top : rows[-1] + 1, left : columns[-1] + 1], top, left)
        self._shown[top : rows[-1] + 1, left : columns[-1] + 1] = frame[top : rows[-1] + 1, left : columns[-1] + 1]

    def _flush(self, now: int) -> None:
        delay = min(max(now - self._pending_since, SHORTEST), LONGEST)
        control = b"!\xf9\x04\x04" + _short(delay) + b"\x00\x00"  # leave the picture in place for the next rectangle
        self._file.write(control + self._pending)
        self._pending_since = now

    def finish(self) -> None:
        """Write the last frame and the end of the file."""
        end = round(100 * self._count / self._fps)
        if self._left_out is not None:
            self._show(self._left_out, self._pending_since + SHORTEST)
        if self._shown is not None:
            self._flush(end)
        self._file.write(b";")

    def _encoded(self, part: np.ndarray, top: int, left: int) -> bytes:
        """A rectangle as an image block with a colour table of its own, taken from a one-picture GIF of Pillow's."""
        buffer = io.BytesIO()
        picture = self._image.fromarray(np.ascontiguousarray(part))
        picture.quantize(256, dither=self._image.Dither.NONE).save(buffer, "GIF", interlace=0)
        data = buffer.getvalue()
        flags = data[10]
        table_end = 13 + (3 << (flags & 7) + 1)
        position = table_end
        while data[position : position + 1] == b"!":  # extensions
            position = _after_blocks(data, position + 2)
        assert data[position : position + 1] == b"," and flags & 0x80 and not data[position + 9] & 0x80
        header = b"," + _short(left) + _short(top) + data[position + 5 : position + 9] + bytes([0x80 | flags & 7])
        pixels = data[position + 10 : _after_blocks(data, position + 11)]
        return header + data[13:table_end] + pixels


def _after_blocks(data: bytes, position: int) -> int:
    """The position behind a chain of sub-blocks (size, bytes, ..., 0)."""
    while data[position]:
        position += data[position] + 1
    return position + 1


def _short(value: int) -> bytes:
    return value.to_bytes(2, "little")
