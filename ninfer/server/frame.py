"""What surrounds every request: its id, host and key rules, and its end when the client leaves."""

import asyncio
import re
import socket
import uuid
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ninfer.server.errors import ANTHROPIC, Fault, Refusal, error_body, fault_of, protocol_of
from ninfer.server.keys import KeyRing

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# Answered without a key: probes, what describes the server, and the page, which asks for one.
OPEN_PATHS: Final = frozenset({"/", "/health", "/ping", "/favicon.ico", "/docs", "/openapi.json"})
OPEN_FOLDERS: Final = ("/page/",)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
ANY_HOST: Final = "*"


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call: keys, the names by which the server may be reached, and pages of others."""

    keys: KeyRing
    hosts: frozenset[str]
    origins: frozenset[str]


def hosts_of(bound: str, allowed: tuple[str, ...]) -> frozenset[str]:
    """The names by which the server may be reached, lower case; `*` is any.

    A server on a loopback address takes only names of this machine, so that a page elsewhere
    cannot reach it by a name that it makes point here.
    """
    if allowed:
        return frozenset(name.lower() for name in allowed)
    if bound not in _LOOPBACK:
        return frozenset({ANY_HOST})
    return _LOOPBACK | {socket.gethostname().lower()}


class Frame:
    """Pure ASGI, since a stream passes through it piece by piece."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app: Final = app
        self._access: Final = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        request_id = state["request_id"] = _request_id(headers)
        marked = _with_request_id(send, request_id, protocol_of(scope["path"]))
        try:
            state["key"] = self._admit(scope, headers)
        except Refusal as refusal:
            await send_fault(marked, fault_of(refusal), scope["path"], request_id)
            return
        run = _while_connected if scope["method"] == "POST" else _plainly
        try:
            await run(self._app, scope, receive, marked)
        except Exception:
            # Starlette raises again what has been logged and answered with a 500.
            if not state.get("answered"):
                raise

    def _admit(self, scope: Scope, headers: Headers) -> Any:
        host = headers.get("host", "")
        if ANY_HOST not in self._access.hosts and _name_of(host) not in self._access.hosts:
            raise _forbidden(
                f"host {host[:80]!r} is not a name of this server; start it with --allowed-host"
            )
        self._check_origin(headers, host)
        key = self._access.keys.find(headers)
        path = scope["path"]
        is_open = path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)
        if key is None and not is_open and scope["method"] != "OPTIONS":
            raise Refusal(
                "the API key is missing or wrong; send it as 'Authorization: Bearer KEY' or "
                "'x-api-key: KEY'",
                status=401,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return key

    def _check_origin(self, headers: Headers, host: str) -> None:
        """A page of another site may not use a server without keys on its visitor's behalf."""
        origin = headers.get("origin")
        if origin is None or not self._access.keys.is_open:
            return
        if not self._access.origins.isdisjoint({origin, ANY_HOST}):
            return
        if _is_foreign(origin, host, headers.get("sec-fetch-site")):
            raise _forbidden(
                f"pages of {origin[:80]} may not call this server; start it with --cors-origin"
            )


def _is_foreign(origin: str, host: str, site: str | None) -> bool:
    """Whether a page of this origin is one of another site; `site` is what the browser says."""
    if origin == "null":
        # Any site can take this name by a sandboxed frame; only browsers write sec-fetch-site.
        return site != "same-origin"
    try:
        parts = urlsplit(origin)
    except ValueError:
        return True
    return parts.scheme in ("http", "https") and parts.netloc.lower() != host.lower()


def _forbidden(message: str) -> Refusal:
    return Refusal(message, status=403, code="forbidden")


def _name_of(host: str) -> str:
    """A Host header less its port, lower case."""
    name = host.rpartition(":")[0] if re.search(r":\d*\Z", host) else host
    return name.strip("[]").lower()


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def _with_request_id(send: Send, request_id: str, protocol: str) -> Send:
    names = [b"x-request-id", *([b"request-id"] if protocol == ANTHROPIC else [])]
    added = [(name, request_id.encode()) for name in names]

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return marked


async def send_fault(send: Send, fault: Fault, path: str, request_id: str) -> None:
    """Answer with an error in the shape that the path's protocol has."""
    status, body = error_body(fault, path, request_id)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **fault.headers,
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def _plainly(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def _while_connected(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the app; cancel it, in whatever it is at, when the client goes away."""
    task = asyncio.current_task()
    assert task is not None
    watch = _Watch(receive, send, task.cancel)
    watcher = asyncio.create_task(watch.run())
    try:
        await app(scope, watch.receive, watch.send)
    except asyncio.CancelledError:
        if not watch.has_left:
            raise
        task.uncancel()
    finally:
        watcher.cancel()
        _release(scope["state"])


def _release(state: MutableMapping[str, Any]) -> None:
    """What the request still holds, should it have ended between two owners."""
    exchange = state.pop("exchange", None)
    if exchange is not None:
        exchange.close()


class _Watch:
    """Listens for the end of the connection once the body has been read."""

    def __init__(self, receive: Receive, send: Send, leave: Callable[[], object]) -> None:
        self._receive = receive
        self._send = send
        self._leave = leave
        self._read = asyncio.Event()
        self._answered = False
        self.has_left = False

    async def receive(self) -> Message:
        """The body for the app. Behind it nothing comes: the watch itself listens there."""
        if self._read.is_set():
            await asyncio.Event().wait()
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._read.set()
        return message

    async def send(self, message: Message) -> None:
        """Send; behind the last piece of an answer a closed connection means nothing."""
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._answered = True
        await self._send(message)

    async def run(self) -> None:
        """Until the client leaves."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._answered:
            self.has_left = True
            self._leave()
