"""One request to one replica after another: what may be sent again, and what ends in an error."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import httpx
from starlette.types import Send

from ninfer.cluster.keys import OWNER, gateway_headers
from ninfer.cluster.prefixes import response_digest
from ninfer.cluster.roster import Member, Roster
from ninfer.cluster.streams import PassedStream
from ninfer.errors import UnavailableError
from ninfer.log import get_logger
from ninfer.server.errors import fault_of

_log = get_logger(__name__)
# Not passed on: what belongs to one connection, or is the gateway's to say.
_CONNECTION: Final = frozenset(
    ("connection", "content-length", "keep-alive", "transfer-encoding", "x-request-id")
)
_CLIENTS: Final = ("accept-encoding", "authorization", "cookie", "expect", "host", "origin")
_OTHERS: Final = ("proxy-authorization", "te", "trailer", "upgrade", "x-api-key", OWNER)
_OWN: Final = _CONNECTION | frozenset((*_CLIENTS, *_OTHERS))
_NOT_BACK: Final = _CONNECTION | frozenset(("date", "request-id", "server"))
# A replica that was begun with may die once; then the client hears of it.
_REPEATS: Final = 1
_PROBE_SECONDS: Final = 30.0
_FULL: Final = (429, 529)
_UNAVAILABLE: Final = 503
_BROKEN: Final = "the replica that answered has failed; send the request again"
_STREAM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Passed:
    """A request as it goes to replicas."""

    method: str
    path: str
    target: bytes  # path and query as the client wrote them
    headers: Mapping[str, str]
    body: bytes
    owner: int
    request_id: str
    beginnings: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Replied:
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class _Dead(Exception):
    """The replica went away before a byte of its answer was passed on."""


class Forwarder:
    """Sends requests to the replicas of a roster."""

    def __init__(self, client: httpx.AsyncClient, roster: Roster, secret: str) -> None:
        """`secret` is what replicas know the gateway by."""
        self._client: Final = client
        self._roster: Final = roster
        self._secret: Final = secret
        self.counts: Final = {"passed": 0, "repeated": 0, "broken": 0, "refused": 0}

    async def forward(self, passed: Passed, send: Send) -> None:
        """Answer through `send`. Raises UnavailableError while nothing has been sent.

        A replica that cannot be reached, does not serve or has no place has run nothing, so
        another is asked. One that dies without having answered has run it invisibly: it is asked
        of another once. Behind the first byte a stream only has its error event left.
        """
        without: set[str] = set()
        repeats = 0
        refusal: Replied | None = None
        while True:
            try:
                # One that would only tell again that it is full is not waited for.
                member = await self._roster.pick(passed.beginnings, without, wait=refusal is None)
            except UnavailableError:
                if refusal is None:
                    raise
                self.counts["refused"] += 1
                await _answer(send, refusal)
                return
            without.add(member.report.replica)
            member.active += 1
            member.sent += 1
            try:
                refusal = await self._attempt(passed, member, send)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                self._roster.gone(member)
                continue
            except _Dead:
                self._roster.gone(member)
                if repeats == _REPEATS:
                    self.counts["broken"] += 1
                    raise UnavailableError(_BROKEN) from None
                repeats += 1
                self.counts["repeated"] += 1
                _log.warning(
                    "request %s is sent again: %s has gone", passed.request_id, member.report.url
                )
                continue
            finally:
                member.active -= 1
            if refusal is None:
                self.counts["passed"] += 1
                return

    async def get(self, member: Member, path: str) -> httpx.Response:
        """A page of one replica. Raises httpx.TransportError."""
        headers = gateway_headers(self._secret, 0)
        url = member.report.url + path
        return await self._client.get(url, headers=headers, timeout=_PROBE_SECONDS)

    async def _attempt(self, passed: Passed, member: Member, send: Send) -> Replied | None:
        """None once all is sent; else the refusal of a replica that has not begun.

        Raises _Dead, or httpx.ConnectError, where nothing has been sent.
        """
        headers = {
            **{name: value for name, value in passed.headers.items() if name not in _OWN},
            **gateway_headers(self._secret, passed.owner),
            "accept-encoding": "identity",
            "x-request-id": passed.request_id,
        }
        request = self._client.build_request(
            passed.method,
            httpx.URL(member.report.url).copy_with(raw_path=passed.target),
            headers=headers,
            content=passed.body,
        )
        try:
            reply = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise
        except httpx.TransportError:
            raise _Dead from None
        try:
            if reply.headers.get("content-type", "").startswith(_STREAM):
                await self._stream(passed, member, reply, send)
                return None
            whole = await _whole(reply)
        finally:
            await reply.aclose()
        if await self._has_not_begun(whole, member):
            return whole
        self._learn(passed, member, whole)
        await _answer(send, whole)
        return None

    async def _stream(
        self, passed: Passed, member: Member, reply: httpx.Response, send: Send
    ) -> None:
        """Pass events on as they come."""
        stream = PassedStream(passed.path, passed.request_id)
        self._roster.know(passed.beginnings, member)
        await send(
            {
                "type": "http.response.start",
                "status": reply.status_code,
                "headers": _headers(reply),
            }
        )
        known = False
        try:
            async for piece in reply.aiter_raw():
                out = stream.pass_on(piece)
                if not known and out:
                    known = True
                    self._know_response(stream.response_name, member)
                if out:
                    await _more(send, out)
            out = stream.rest()
        except httpx.TransportError:
            self._roster.gone(member)
            self.counts["broken"] += 1
            _log.warning("request %s ends: %s has gone", passed.request_id, member.report.url)
            out = stream.broken(fault_of(UnavailableError(_BROKEN)))
        await send({"type": "http.response.body", "body": out, "more_body": False})

    async def _has_not_begun(self, whole: Replied, member: Member) -> bool:
        """Whether a refusal is one of this replica only, which others may not share."""
        if whole.status in _FULL:
            return True
        if whole.status != _UNAVAILABLE:
            return False
        # Its queue may only have been too long; the engine knows whether it serves at all.
        try:
            serves = (await self.get(member, "/health")).status_code != _UNAVAILABLE
        except httpx.TransportError:
            serves = False
        if not serves:
            self._roster.gone(member)
        return not serves

    def _learn(self, passed: Passed, member: Member, whole: Replied) -> None:
        if whole.status != 200 or passed.method != "POST":
            return
        self._roster.know(passed.beginnings, member)
        if passed.path.removeprefix("/v1") == "/responses":
            self._know_response(_name_of(whole.body), member)

    def _know_response(self, name: str | None, member: Member) -> None:
        if name is not None:
            self._roster.know([response_digest(name)], member)


async def _whole(reply: httpx.Response) -> Replied:
    """Raises _Dead where it is cut."""
    try:
        body = await reply.aread()
    except httpx.TransportError:
        raise _Dead from None
    return Replied(reply.status_code, _headers(reply), body)


async def _answer(send: Send, whole: Replied) -> None:
    length = (b"content-length", str(len(whole.body)).encode())
    headers = [*whole.headers, length]
    await send({"type": "http.response.start", "status": whole.status, "headers": headers})
    await send({"type": "http.response.body", "body": whole.body})


async def _more(send: Send, piece: bytes) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": True})


def _headers(reply: httpx.Response) -> list[tuple[bytes, bytes]]:
    raw = [(name.lower(), value) for name, value in reply.headers.raw]
    return [(name, value) for name, value in raw if name.decode("latin-1") not in _NOT_BACK]


def _name_of(body: bytes) -> str | None:
    """The id of a response."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    name = value.get("id") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None
