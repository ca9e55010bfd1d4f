"""Image files as data URLs, known by their first bytes and not by their names."""

import base64
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError

# More than the decoder of any sensible picture needs; a video by mistake is refused at once.
LARGEST: Final = 32 << 20
_KINDS: Final = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
)


def image_url(path: Path) -> str:
    """The file as a data URL. Raises UsageError naming the file and what is wrong with it."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise UsageError(f"{path}: {size >> 20} MiB; an image may have {LARGEST >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    kind = next((name for start, name in _KINDS if data.startswith(start)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "webp"
    if kind is None:
        raise UsageError(f"{path}: no PNG, JPEG, WebP, GIF or BMP image")
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
