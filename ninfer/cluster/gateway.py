"""The gateway: one address, the API of a single server, and any number of replicas behind it."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final
from urllib.parse import quote

import httpx
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ninfer.cluster.exposition import joined
from ninfer.cluster.forward import Forwarder, Passed
from ninfer.cluster.prefixes import beginnings, response_digest
from ninfer.cluster.roster import Member, Roster
from ninfer.errors import NInferError, UnavailableError
from ninfer.server.app import surrounded
from ninfer.server.body import read_body
from ninfer.server.errors import Refusal, fault_of
from ninfer.server.frame import send_fault
from ninfer.server.keys import Key
from ninfer.server.metrics import CONTENT_TYPE
from ninfer.server.options import ServerOptions
from ninfer.server.reply import json_response

# Requests that count against a key's limits: those that make an engine work.
_LIMITED: Final = frozenset({"/chat/completions", "/completions", "/messages", "/responses"})
_HEALTH: Final = ("/health", "/ping")
_READ: Final = ("GET", "HEAD")
_CONNECT_SECONDS: Final = 5.0
# Below the time after which replicas close idle connections, so that none closes on a request.
_IDLE_SECONDS: Final = 30.0
# A machine that has lost its power closes nothing: the system asks it whether it is there.
_PROBED: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_LOOK_SECONDS: Final = 0.05


class Gateway:
    """Pure ASGI below the server's frame: whoever comes here has a key, and an id."""

    def __init__(self, options: ServerOptions, roster: Roster, secret: str) -> None:
        """`secret` is what replicas know this gateway by."""
        # A whole answer may take as long as the longest generation: no limit of ours on reading.
        self._client: Final = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            transport=httpx.AsyncHTTPTransport(
                limits=httpx.Limits(keepalive_expiry=_IDLE_SECONDS), socket_options=_PROBED
            ),
        )
        self._options: Final = options
        self._roster: Final = roster
        self._forwarder: Final = Forwarder(self._client, roster, secret)
        self._registry: Final = CollectorRegistry()
        self._registry.register(_Numbers(roster, self._forwarder.counts))
        self._draining = False
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._life(receive, send)
            return
        if scope["type"] != "http":
            return
        self.active += 1
        try:
            await self._answer(Request(scope, receive), send)
        except NInferError as error:
            request_id = scope["state"]["request_id"]
            await send_fault(send, fault_of(error), scope["path"], request_id)
        finally:
            self.active -= 1

    async def drain(self) -> None:
        """Take no new requests, and wait until those under way have ended, or for --drain-s."""
        self._draining = True
        end = time.monotonic() + self._options.drain_s
        while self.active and time.monotonic() < end:
            await asyncio.sleep(_LOOK_SECONDS)

    async def _answer(self, request: Request, send: Send) -> None:
        path, reads = request.url.path, request.method in _READ
        if reads and path in _HEALTH:
            await _send(send, self._health(), request)
        elif reads and path == "/metrics":
            page = Response(await self._metrics(), headers={"content-type": CONTENT_TYPE})
            await _send(send, page, request)
        elif reads and path == "/replicas":
            await _send(send, json_response({"replicas": self._roster.state()}), request)
        else:
            await self._pass(request, send)

    async def _pass(self, request: Request, send: Send) -> None:
        if self._draining:
            raise UnavailableError("the server is shutting down; send the request elsewhere")
        body = b""
        if request.method not in _READ:
            body = await read_body(request, self._options.max_request_mib << 20)
        key: Key | None = request.state.key
        passed = Passed(
            request.method,
            request.url.path,
            _target_of(request.scope),
            request.headers,
            body,
            0 if key is None else key.number,
            request.state.request_id,
            _beginnings_of(request.url.path, body),
        )
        with _use(key, request):
            await self._forwarder.forward(passed, send)

    def _health(self) -> Response:
        if self._draining:
            reason = "the server is shutting down"
        elif not self._roster.usable:
            reason = "no replica serves"
        else:
            return json_response({"status": "ok"})
        return json_response({"status": "unavailable", "reason": reason}, 503)

    async def _metrics(self) -> bytes:
        """The gateway's own numbers, and those of all replicas that answer."""
        members = self._roster.usable
        pages = await asyncio.gather(*(self._page_of(member) for member in members))
        found = {
            member.report.replica: page
            for member, page in zip(members, pages, strict=True)
            if page is not None
        }
        return generate_latest(self._registry) + joined(found).encode()

    async def _page_of(self, member: Member) -> str | None:
        try:
            reply = await self._forwarder.get(member, "/metrics")
        except httpx.TransportError:
            return None
        return reply.text if reply.status_code == 200 else None

    async def _life(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._client.aclose()
        await send({"type": "lifespan.shutdown.complete"})


def gateway_app(gateway: Gateway, options: ServerOptions) -> ASGIApp:
    """The gateway behind the rules of keys, hosts and origins.

    Raises UsageError for a key file that cannot be read.
    """
    return surrounded(gateway, options)


def _use(key: Key | None, request: Request) -> AbstractContextManager[None]:
    """The key's limits, which hold for all replicas together. Raises Refusal beyond them."""
    limited = request.url.path.removeprefix("/v1") in _LIMITED and request.method == "POST"
    return key.use() if key is not None and limited else nullcontext()


def _beginnings_of(path: str, body: bytes) -> list[bytes]:
    """What a request begins with; nothing for a body that only a replica's error will answer."""
    name = path.removeprefix("/v1").removeprefix("/responses/").partition("/")[0]
    if name.startswith("resp_"):
        return [response_digest(name)]
    if not body:
        return []
    try:
        value = json.loads(body)
        return beginnings(path, value) if isinstance(value, dict) else []
    except (ValueError, RecursionError):
        return []


def _target_of(scope: Scope) -> bytes:
    """Path and query, unchanged. Raises Refusal for what is no path: it would become a host."""
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    if not path.startswith(b"/"):
        raise Refusal("the request's target is no path", status=400)
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


async def _send(send: Send, response: Response, request: Request) -> None:
    await response(request.scope, request.receive, send)


class _Numbers(Collector):
    """The gateway's numbers, read when the page is made."""

    def __init__(self, roster: Roster, counts: dict[str, int]) -> None:
        self._roster: Final = roster
        self._counts: Final = counts

    def collect(self) -> Iterator[Metric]:
        members = self._roster.members
        serving = len(self._roster.usable)
        replicas = GaugeMetricFamily(
            "ninfer_cluster_replicas", "replicas by whether they serve", labels=["serves"]
        )
        replicas.add_metric(["yes"], serving)
        replicas.add_metric(["no"], len(members) - serving)
        yield replicas
        active = GaugeMetricFamily(
            "ninfer_cluster_requests", "requests under way", labels=["replica"]
        )
        for member in members:
            active.add_metric([member.report.replica], member.active)
        yield active
        for name, text, values in (
            ("routed", "requests by where their conversation was sent", self._roster.routed),
            ("attempts", "requests by how sending them on went", self._counts),
        ):
            family = CounterMetricFamily(f"ninfer_cluster_{name}", text, labels=["how"])
            for how, value in values.items():
                family.add_metric([how], value)
            yield family
