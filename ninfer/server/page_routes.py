"""The page for people at `/`: static files with a strict policy, cached by what they hold."""

import hashlib
from importlib import resources
from typing import Final

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

# Scripts, styles and requests of this server only; nothing inline, nothing from elsewhere, and no
# text that becomes markup.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_KINDS: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_SAFE: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_READ: Final = ["GET", "HEAD"]


def page_router() -> APIRouter:
    """Routes `/`, `/favicon.ico` and `/page/DIGEST/NAME`, open to everyone: they hold no data.

    The digest is that of all files together, so those below it never change and are cached for
    good, while `/` is asked for again each time and answered 304 as long as it is the same.
    """
    files = _read_files()
    digest = hashlib.sha256(b"".join(name.encode() + data for name, data in files)).hexdigest()[:16]
    assets = dict(files)
    index = assets.pop("index.html").replace(b"@digest@", digest.encode())
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=_READ)
    def page(request: Request) -> Response:
        return _answer(request, index, "html", f'"{digest}"', "no-cache")

    @router.api_route("/favicon.ico", methods=_READ)
    def favicon(request: Request) -> Response:
        return _answer(request, assets["icon.svg"], "svg", f'"{digest}"', "max-age=86400")

    @router.api_route("/page/{version}/{name}", methods=_READ)
    def asset(request: Request, version: str, name: str) -> Response:
        if version != digest or name not in assets:
            raise HTTPException(404)
        kind = name.rpartition(".")[2]
        lasting = "public, max-age=31536000, immutable"
        return _answer(request, assets[name], kind, f'"{digest}"', lasting)

    return router


def _read_files() -> list[tuple[str, bytes]]:
    folder = resources.files("ninfer.server").joinpath("page")
    found = [(file.name, file) for file in folder.iterdir() if file.is_file()]
    return [
        (name, file.read_bytes())
        for name, file in sorted(found)
        if name.rpartition(".")[2] in _KINDS
    ]


def _answer(request: Request, data: bytes, kind: str, tag: str, caching: str) -> Response:
    headers = {**_SAFE, "ETag": tag, "Cache-Control": caching}
    known = request.headers.get("if-none-match", "")
    if tag in (part.strip().removeprefix("W/") for part in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(data, headers={**headers, "Content-Type": _KINDS[kind]})
