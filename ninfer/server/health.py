"""Whether the server serves, its version, and its numbers."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ninfer.server.metrics import CONTENT_TYPE
from ninfer.server.reply import json_response
from ninfer.server.service import Service
from ninfer.version import VERSION

router = APIRouter(tags=["server"])


@router.get("/health")
@router.head("/health", include_in_schema=False)
@router.get("/ping", include_in_schema=False)
@router.head("/ping", include_in_schema=False)
async def health(request: Request) -> Response:
    """200 while requests are served; 503 and the reason when not."""
    service: Service = request.app.state.service
    if service.trouble is None:
        return json_response({"status": "ok"})
    return json_response({"status": "unavailable", "reason": service.trouble}, 503)


@router.get("/metrics")
@router.head("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Prometheus text."""
    service: Service = request.app.state.service
    return Response(service.metrics.page(), headers={"content-type": CONTENT_TYPE})


@router.get("/version")
async def version() -> Response:
    """The version of the server."""
    return json_response({"version": VERSION})
