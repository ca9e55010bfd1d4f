"""create_app: routes, what surrounds them, and the life of the service, in one place."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from ninfer.errors import NInferError
from ninfer.log import get_logger
from ninfer.server import health
from ninfer.server.anthropic import messages
from ninfer.server.culprit import placed
from ninfer.server.errors import Fault, error_body, fault_of, is_defect
from ninfer.server.exchange import Exchange
from ninfer.server.frame import ANY_HOST, Access, Frame, hosts_of
from ninfer.server.keys import KeyRing, read_keys
from ninfer.server.openai import chat, completions, models, tokenize
from ninfer.server.options import ServerOptions
from ninfer.server.page_routes import page_router
from ninfer.server.pages import ERRORS
from ninfer.server.responses import routes as responses
from ninfer.server.service import Service
from ninfer.version import VERSION

_log = get_logger(__name__)
# Clients are configured with and without it.
_PREFIXES = ("/v1", "")
_EXPOSED = ("x-request-id", "request-id", "retry-after")


def create_app(service: Service, keys: KeyRing | None = None) -> ASGIApp:
    """The ASGI app of a service; its lifespan closes the service.

    `keys` stands in for those that the options name. Raises UsageError for a key file that cannot
    be read.
    """
    options = service.options
    app = FastAPI(
        title="ninfer", version=VERSION, lifespan=_life(service), redoc_url=None, docs_url="/docs"
    )
    app.state.service = service
    for module in (chat, completions, messages, models, responses, tokenize):
        for prefix in _PREFIXES:
            app.include_router(
                module.router,
                prefix=prefix,
                include_in_schema=prefix == "/v1",
                responses=ERRORS,
            )
    app.include_router(health.router, responses=ERRORS)
    app.include_router(page_router())
    app.add_exception_handler(NInferError, _refused)
    app.add_exception_handler(HTTPException, _not_routed)
    app.add_exception_handler(Exception, _failed)
    return surrounded(app, options, keys)


def surrounded(app: ASGIApp, options: ServerOptions, keys: KeyRing | None = None) -> ASGIApp:
    """An app behind the server's rules of keys, hosts and origins, and with request ids.

    Raises UsageError for a key file that cannot be read.
    """
    access = Access(
        keys or KeyRing(read_keys(options.api_key, options.api_key_file)),
        hosts_of(options.host, options.allowed_host),
        frozenset({ANY_HOST} if options.cors else options.cors_origin),
    )
    return _with_cors(Frame(app, access), options)


def _life(service: Service) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        works = (service.report(), service.activity.watch())
        tasks = [asyncio.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()
        await service.close()

    return life


def _with_cors(app: ASGIApp, options: ServerOptions) -> ASGIApp:
    """Headers for pages of other origins, also on errors and streams; none unless asked for."""
    if not (options.cors or options.cors_origin):
        return app
    return CORSMiddleware(
        app,
        allow_origins=[ANY_HOST] if options.cors else list(options.cors_origin),
        allow_methods=["GET", "POST", "DELETE", "OPTIONS", "HEAD"],
        allow_headers=["*"],
        expose_headers=list(_EXPOSED),
    )


def _answer(request: Request, fault: Fault) -> Response:
    status, body = error_body(fault, request.url.path, request.state.request_id)
    return Response(body, status, dict(fault.headers), "application/json")


async def _refused(request: Request, error: Exception) -> Response:
    fault = placed(fault_of(error), getattr(request.state, "body", {}))
    if not getattr(request.state, "journaled", False):
        service: Service = request.app.state.service
        service.metrics.count("requests", "invalid")
    if is_defect(fault.status) and not _told(request):
        _log.error("request %s failed: %s", request.state.request_id, error)
    return _answer(request, fault)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    messages = {
        404: f"there is nothing at {request.url.path[:200]}",
        405: f"{request.method} is not for {request.url.path[:200]}",
    }
    message = messages.get(error.status_code, str(error.detail))
    code = codes.get(error.status_code, "invalid_request")
    return _answer(request, Fault(error.status_code, code, message, None, error.headers or {}))


def _told(request: Request) -> bool:
    """Whether the log knows already: the journal tells it how each exchange ends."""
    exchange: Exchange | None = getattr(request.state, "exchange", None)
    return exchange is not None and exchange.failed


async def _failed(request: Request, error: Exception) -> Response:
    if not _told(request):
        _log.error("request %s failed: %s", request.state.request_id, error, exc_info=error)
    request.state.answered = True
    return _answer(request, fault_of(error))
