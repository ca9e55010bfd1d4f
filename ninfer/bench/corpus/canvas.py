"""A canvas of pixels with circles, boxes, triangles, stars and small letters; PNG and AVI of it."""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Pixels = NDArray[np.uint8]

# Letters of 5 x 7 pixels, each row five bits.
_LETTERS: Final = {
    "0": (14, 17, 19, 21, 25, 17, 14),
    "1": (4, 12, 4, 4, 4, 4, 14),
    "2": (14, 17, 1, 2, 4, 8, 31),
    "3": (31, 2, 4, 2, 1, 17, 14),
    "4": (2, 6, 10, 18, 31, 2, 2),
    "5": (31, 16, 30, 1, 1, 17, 14),
    "6": (6, 8, 16, 30, 17, 17, 14),
    "7": (31, 1, 2, 4, 8, 8, 8),
    "8": (14, 17, 17, 14, 17, 17, 14),
    "9": (14, 17, 17, 15, 1, 2, 12),
    "A": (14, 17, 17, 31, 17, 17, 17),
    "C": (14, 17, 16, 16, 16, 17, 14),
    "D": (28, 18, 17, 17, 17, 18, 28),
    "E": (31, 16, 16, 30, 16, 16, 31),
    "K": (17, 18, 20, 24, 20, 18, 17),
    "L": (16, 16, 16, 16, 16, 16, 31),
    "O": (14, 17, 17, 17, 17, 17, 14),
    "R": (30, 17, 17, 30, 20, 18, 17),
}


class Canvas:
    """Pixels [height, width, 3]; places are (x, y) of a middle, sizes in pixels."""

    def __init__(self, width: int, height: int, ground: Colour = (245, 245, 240)) -> None:
        self.pixels: Pixels = np.empty((height, width, 3), dtype=np.uint8)
        self.pixels[:] = ground
        self._y, self._x = np.mgrid[:height, :width]

    def circle(self, x: int, y: int, radius: int, colour: Colour) -> None:
        """A filled circle."""
        self.pixels[(self._x - x) ** 2 + (self._y - y) ** 2 <= radius**2] = colour

    def box(self, x: int, y: int, width: int, height: int, colour: Colour) -> None:
        """A filled box."""
        inside = (abs(self._x - x) * 2 <= width) & (abs(self._y - y) * 2 <= height)
        self.pixels[inside] = colour

    def polygon(self, corners: Sequence[tuple[float, float]], colour: Colour) -> None:
        """A filled polygon, also one that is not convex."""
        inside = np.zeros(self._x.shape, dtype=bool)
        for (x1, y1), (x2, y2) in zip(corners, (*corners[1:], corners[0]), strict=True):
            if y1 == y2:
                continue
            crosses = (self._y < y1) != (self._y < y2)
            inside ^= crosses & (self._x < x1 + (self._y - y1) * (x2 - x1) / (y2 - y1))
        self.pixels[inside] = colour

    def triangle(self, x: int, y: int, size: int, colour: Colour) -> None:
        """A filled triangle that stands on its base."""
        half = size / 2
        self.polygon([(x, y - half), (x + half, y + half), (x - half, y + half)], colour)

    def star(self, x: int, y: int, radius: int, colour: Colour) -> None:
        """A filled star of five points."""
        corners = []
        for n in range(10):
            angle, reach = math.pi * (n / 5 - 0.5), radius if n % 2 == 0 else radius * 0.4
            corners.append((x + reach * math.cos(angle), y + reach * math.sin(angle)))
        self.polygon(corners, colour)

    def text(self, x: int, y: int, text: str, scale: int, colour: Colour = (20, 20, 20)) -> None:
        """Letters from (x, y), the upper left corner; each is 6 x 7 times `scale` pixels."""
        for letter in text:
            for row, bits in enumerate(_LETTERS.get(letter, (0,) * 7)):
                for column in range(5):
                    if bits >> (4 - column) & 1:
                        top, left = y + row * scale, x + column * scale
                        self.pixels[top : top + scale, left : left + scale] = colour
            x += 6 * scale

    def png(self) -> str:
        """The canvas as a PNG in a data URL."""
        height, width, _ = self.pixels.shape
        rows = np.concatenate((np.zeros((height, 1), np.uint8), self.pixels.reshape(height, -1)), 1)
        head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
        data = b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*parts, strict=True)))
        return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def avi(frames: Sequence[Pixels], per_second: int) -> str:
    """Frames of one size as an AVI without compression in a data URL; all decoders read it."""
    height, width, _ = frames[0].shape
    assert width % 4 == 0, width  # rows would need padding
    images = [frame[::-1, :, ::-1].tobytes() for frame in frames]  # bottom up, blue first
    size, count = len(images[0]), len(images)
    main = struct.pack(
        "<14I", 1_000_000 // per_second, size * per_second, 0, 0x10, count, 0, 1, size, width,
        height, *(0, 0, 0, 0),
    )  # fmt: skip
    stream = struct.pack(
        "<4s4sIHHIIIIIIIIHHHH", b"vids", b"DIB ", 0, 0, 0, 0, 1, per_second, 0, count, size,
        0xFFFFFFFF, size, 0, 0, width, height,
    )  # fmt: skip
    form = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, size, 0, 0, 0, 0)
    header = _riff(b"avih", main) + _list(b"strl", _riff(b"strh", stream) + _riff(b"strf", form))
    movie = _list(b"movi", b"".join(_riff(b"00db", image) for image in images))
    places = (4 + n * (8 + size) for n in range(count))
    index = b"".join(struct.pack("<4sIII", b"00db", 0x10, place, size) for place in places)
    body = b"AVI " + _list(b"hdrl", header) + movie + _riff(b"idx1", index)
    return f"data:video/x-msvideo;base64,{base64.b64encode(_riff(b'RIFF', body)).decode()}"


def _riff(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def _list(kind: bytes, body: bytes) -> bytes:
    return _riff(b"LIST", kind + body)
