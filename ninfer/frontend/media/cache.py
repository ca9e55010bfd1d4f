"""Media that come again, as the pictures of a long conversation do in each of its requests."""

import hashlib
import threading
from collections import OrderedDict
from typing import Final

from ninfer.request import Media, MediaKind

_Key = tuple[MediaKind, bytes]


class MediaCache:
    """Decoded media by the bytes that they came as, the least recently used first to go.

    For any number of threads. Holds at most `most_bytes` of pixels; 0 holds none.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most: Final = most_bytes
        self._lock: Final = threading.Lock()
        self._found: Final[OrderedDict[_Key, Media]] = OrderedDict()
        self._bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of pixels that are held."""
        return self._bytes

    def key(self, kind: MediaKind, data: bytes) -> _Key:
        """What media of these bytes are known by."""
        return kind, hashlib.sha256(data).digest()

    def get(self, key: _Key) -> Media | None:
        """The media, if they are held."""
        with self._lock:
            media = self._found.get(key)
            if media is not None:
                self._found.move_to_end(key)
            return media

    def put(self, key: _Key, media: Media) -> None:
        """Hold media; others go when there is no room."""
        size = media.patches.nbytes
        with self._lock:
            if size > self._most or key in self._found:
                return
            self._found[key] = media
            self._bytes += size
            while self._bytes > self._most:
                _, gone = self._found.popitem(last=False)
                self._bytes -= gone.patches.nbytes
