"""HTTP to the rental vendor: pace, retries of what may be repeated, and what an answer means."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from ninfer.errors import OutcomeUnknownError, ProviderError, RefusedError
from ninfer.fleet.clock import Clock
from ninfer.version import VERSION

# Least seconds between two calls of a kind, by the vendor's documentation.
INTERVALS: Final = {
    "search": 6.0,
    "show": 2.0,
    "list": 1.0,
    "change": 1.0,
    "rent": 4.5,
    "destroy": 3.0,
    "account": 1.0,
    "log": 1.0,
}
_TRIES: Final = 5
_FIRST_PAUSE: Final = 2.0
_LONGEST_PAUSE: Final = 60.0
_LONGEST_TEXT: Final = 400
_GONE: Final = ("no_such_instance", "not_found", "no_such_contract")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; `body` is None when it is not a JSON object."""

    status: int
    body: dict[str, Any] | None
    text: str
    headers: Mapping[str, str]

    @property
    def code(self) -> str:
        """The vendor's word for an error, empty if there is none."""
        return str((self.body or {}).get("error") or "")

    @property
    def reason(self) -> str:
        """The vendor's text on one line, at most 400 characters."""
        body = self.body or {}
        text = body.get("msg") or body.get("message") or body.get("detail") or self.text
        return " ".join(str(text).split())[:_LONGEST_TEXT]

    @property
    def is_gone(self) -> bool:
        """Whether it says that there is no such machine; a 404 of something else does not."""
        return self.status == 404 and self.code in _GONE

    @property
    def is_bad_key(self) -> bool:
        """Whether it is about the key. The vendor sends 404 for that as well."""
        return self.code == "auth_error" or self.status == 401 or "Session expired" in self.reason

    @property
    def is_quota(self) -> bool:
        """Whether a day's number of searches is used up."""
        return self.code == "search_quota_exceeded"


class VastHttp:
    """One connection pool. `redact` takes secrets out of texts before they are shown."""

    def __init__(
        self,
        root: str,
        key: str,
        clock: Clock,
        redact: Callable[[str], str] = str,
        timeout: float = 30.0,
    ) -> None:
        self._root = root.rstrip("/")
        self._clock = clock
        self._redact = redact
        self._last: dict[str, float] = {}
        local = httpx.URL(self._root).host in ("127.0.0.1", "localhost", "::1")
        self._http = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            headers={"Authorization": f"Bearer {key}", "User-Agent": f"ninfer/{VERSION}"},
            trust_env=not local,
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def ask(self, kind: str, method: str, path: str, **parts: Any) -> Answer:
        """Send what may be sent twice, up to five times. Returns an answer below 500 but 429.

        Raises RefusedError for a bad key; ProviderError when every try failed or was limited.
        """
        pause = _FIRST_PAUSE
        for left in reversed(range(_TRIES)):
            try:
                answer = self._send(kind, method, path, parts)
            except httpx.HTTPError as error:
                failure = f"{method} {path}: {_name(error)}"
            else:
                if answer.status != 429 and answer.status < 500:
                    return self._keyed(answer)
                failure = f"{method} {path}: {answer.status} {self._redact(answer.reason)}"
                if answer.is_quota:
                    raise ProviderError(f"{failure}; the quota of searches is new at 00:00 UTC")
                pause = max(pause, _wished_pause(answer))
            if left:
                self._clock.sleep(min(pause, _LONGEST_PAUSE))
                pause *= 2
        raise ProviderError(f"{failure}; nothing was learnt from the vendor, try again later")

    def once(self, kind: str, method: str, path: str, **parts: Any) -> Answer:
        """Send once. Raises ProviderError if nothing was sent, OutcomeUnknownError if it may be."""
        try:
            return self._send(kind, method, path, parts)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ProviderError(f"{method} {path}: {_name(error)}; nothing was sent") from None
        except httpx.HTTPError as error:
            raise OutcomeUnknownError(f"{method} {path}: {_name(error)}") from None

    def fetch(self, url: str) -> str | None:
        """The text behind an address that the vendor gave, without our key; None if not yet."""
        try:
            answer = httpx.get(url, timeout=20.0, trust_env=self._http.trust_env)
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        return answer.text if answer.status_code == 200 else None

    def _send(self, kind: str, method: str, path: str, parts: Mapping[str, Any]) -> Answer:
        since = self._clock.now() - self._last.get(kind, 0.0)
        if 0 <= since < INTERVALS[kind]:
            self._clock.sleep(INTERVALS[kind] - since)
        try:
            got = self._http.request(method, self._root + path, **parts)
        finally:
            self._last[kind] = self._clock.now()
        return Answer(got.status_code, _object(got.content), got.text, got.headers)

    def _keyed(self, answer: Answer) -> Answer:
        if answer.is_bad_key:
            raise RefusedError(
                f"the vendor refused VAST_API_KEY: {self._redact(answer.reason)}; make a new key"
            )
        return answer

    def clean(self, text: str) -> str:
        """The text without secrets."""
        return self._redact(text)

    def unintelligible(self, what: str, answer: Answer) -> ProviderError:
        """The error for an answer of unknown shape, which is never taken for an empty one."""
        text = self._redact(answer.reason) or "an empty body"
        return ProviderError(
            f"{what}: {answer.status} {text!r} is no known answer; nothing was concluded"
        )


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _name(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _wished_pause(answer: Answer) -> float:
    try:
        wish = float(answer.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return wish if 0 <= wish <= _LONGEST_PAUSE else 0.0
