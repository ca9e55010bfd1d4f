"""The bytes behind a media source: a data URI, a local file, or a download, each within limits."""

import base64
import binascii
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from ninfer.errors import PromptError
from ninfer.frontend.media.download import DownloadRules, download

_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class SourceRules:
    """Where the media of a request may come from. Data URIs always may.

    Requests of strangers must not read files of this machine, so that is off unless asked for.
    """

    local_files: bool = False
    downloads: DownloadRules | None = field(default_factory=DownloadRules)


def read_source(source: str, rules: SourceRules, max_bytes: int, place: str) -> bytes:
    """The bytes of a path, file URL, http(s) URL or data URI.

    Raises PromptError naming `place` for a source that is not allowed, cannot be read or has more
    than `max_bytes` bytes.
    """
    if source[:5].lower() == "data:":
        return _data_uri(source, max_bytes, place)
    try:
        scheme = urlsplit(source).scheme.lower()
    except ValueError as error:
        raise PromptError(f"{place}: {shown(source)} is not a URL: {error}") from None
    if scheme in ("http", "https"):
        if rules.downloads is None:
            raise PromptError(f"{place}: downloads are switched off; send a data URI")
        return download(source, rules.downloads, max_bytes, place)
    # A single letter is a drive of Windows, not a scheme.
    if len(scheme) > 1 and scheme != "file":
        raise PromptError(f"{place}: {shown(source)} is none of http, https, file and data")
    if not rules.local_files:
        raise PromptError(
            f"{place}: {shown(source)} is a file of this machine, which requests must not read;"
            " send a data URI"
        )
    path = url2pathname(unquote(urlsplit(source).path)) if scheme == "file" else source
    return _file(Path(path), max_bytes, place)


def shown(source: str) -> str:
    """The beginning of a source, for messages."""
    return repr(source if len(source) <= _SHOWN else source[: _SHOWN - 3] + "...")


def too_long(place: str, max_bytes: int) -> PromptError:
    """The error for media beyond the bytes that a request may bring."""
    return PromptError(
        f"{place} has more than the {max_bytes:,} bytes that this request may still bring"
    )


def _data_uri(source: str, max_bytes: int, place: str) -> bytes:
    head, comma, body = source.partition(",")
    if not comma:
        raise PromptError(f"{place}: {shown(source)} is not a data URI; there is no comma")
    is_base64 = head.lower().endswith(";base64")
    if len(body) > (max_bytes // 3 + 1) * 4 if is_base64 else len(body) > 3 * max_bytes:
        raise too_long(place, max_bytes)
    if not is_base64:
        return _bounded(unquote_to_bytes(body), max_bytes, place)
    text = unquote(body) if "%" in body else body
    text = "".join(text.split()).rstrip("=")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise PromptError(f"{place}: the data URI is not valid base64: {error}") from None
    return _bounded(data, max_bytes, place)


def _bounded(data: bytes, max_bytes: int, place: str) -> bytes:
    if len(data) > max_bytes:
        raise too_long(place, max_bytes)
    return data


def _file(path: Path, max_bytes: int, place: str) -> bytes:
    try:
        # Without waiting: opening a pipe would block until something is written to it.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise PromptError(f"{place}: {shown(str(path))} is not a regular file")
            return _bounded(file.read(max_bytes + 1), max_bytes, place)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PromptError(f"{place}: {shown(str(path))}: {reason}") from None
