"""API keys and what each may use: requests a minute, and requests at once."""

import hmac
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError
from ninfer.server.errors import Refusal

_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one key may use; None: any amount."""

    requests_per_minute: int | None = None
    concurrent: int | None = None


class Key:
    """One key's use so far. `number` names it in logs, where the key itself never stands."""

    def __init__(
        self, number: int, limits: KeyLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.number: Final = number
        self._limits = limits
        self._clock = clock
        self._times: deque[float] = deque()
        self._running = 0

    @contextmanager
    def use(self) -> Iterator[None]:
        """One request under this key. Raises Refusal beyond its limits."""
        now = self._clock()
        rate, most = self._limits.requests_per_minute, self._limits.concurrent
        while self._times and self._times[0] <= now - _MINUTE:
            self._times.popleft()
        if rate is not None and len(self._times) >= rate:
            wait = self._times[0] + _MINUTE - now
            raise _limited(f"this key has {rate} requests a minute", int(wait) + 1)
        if most is not None and self._running >= most:
            raise _limited(f"this key has {most} requests at once", 1)
        if rate is not None:
            self._times.append(now)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1


def _limited(what: str, seconds: int) -> Refusal:
    return Refusal(
        f"{what}; wait and try again",
        status=429,
        code="rate_limit_exceeded",
        headers={"retry-after": str(seconds)},
    )


class KeyRing:
    """All keys of a server. Without any, everyone may come."""

    def __init__(
        self,
        keys: Mapping[str, KeyLimits],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = [
            (text.encode(), Key(number, limits, clock))
            for number, (text, limits) in enumerate(keys.items(), 1)
        ]
        self._anyone = Key(0, KeyLimits(), clock)

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for."""
        return not self._keys

    def find(self, headers: Mapping[str, str]) -> Key | None:
        """The key that a request brings, as bearer token or as x-api-key; None for no known one."""
        if not self._keys:
            return self._anyone
        scheme, _, token = headers.get("authorization", "").partition(" ")
        offered = [token.strip()] if scheme.lower() == "bearer" else []
        offered.append(headers.get("x-api-key", "").strip())
        found = None
        # All are compared, each in constant time, so that the time tells nothing of them.
        for text in offered:
            for known, key in self._keys:
                if hmac.compare_digest(known, text.encode("utf-8", "surrogateescape")):
                    found = key
        return found


def read_keys(given: Iterable[str], file: Path | None) -> dict[str, KeyLimits]:
    """Keys of the command line, without limits, and those of a file.

    Raises UsageError naming file and line, never the key.
    """
    keys = {key: KeyLimits() for key in given}
    if file is None:
        return keys
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"--api-key-file {file}: {reason}") from None
    found = False
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            keys[words[0]] = _limits(words[1:], f"--api-key-file {file}, line {number}")
            found = True
    if not found:
        raise UsageError(f"--api-key-file {file}: holds no key; everyone could come")
    return keys


def _limits(words: list[str], where: str) -> KeyLimits:
    found: dict[str, int] = {}
    for word in words:
        name, _, value = word.partition("=")
        if (
            name not in ("requests_per_minute", "concurrent")
            or not value.isdecimal()
            or not int(value)
        ):
            raise UsageError(
                f"{where}: {word!r} is no limit; write requests_per_minute=N or concurrent=N"
            )
        found[name] = int(value)
    return KeyLimits(**found)
