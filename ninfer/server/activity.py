"""The time of the last request as the age of a file, for what ends idle machines."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ninfer.log import get_logger

_log = get_logger(__name__)
# While an answer is written the file is never much older than this.
_SECONDS: Final = 10.0


class Activity:
    """Touches a file when a request begins and ends, and while any is under way.

    Looks at health, models and metrics are no requests. Without a path it does nothing. A file
    that cannot be touched is logged once: answers do not depend on it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path: Final = path
        self._under_way = 0
        self._failed = False

    @contextmanager
    def during(self) -> Iterator[None]:
        """Around one request, from its arrival until its last byte."""
        self._under_way += 1
        self._touch()
        try:
            yield
        finally:
            self._under_way -= 1
            self._touch()

    async def watch(self) -> None:
        """Touch at once, then while requests are under way; until it is cancelled."""
        self._touch()
        while self._path is not None:
            await asyncio.sleep(_SECONDS)
            if self._under_way:
                self._touch()

    def _touch(self) -> None:
        if self._path is None:
            return
        try:
            self._path.touch()
        except OSError as error:
            if not self._failed:
                _log.warning("--activity-file %s: %s", self._path, error.strerror)
            self._failed = True
