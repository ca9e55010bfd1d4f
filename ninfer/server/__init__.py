"""OpenAI and Anthropic protocols over HTTP."""

from typing import TYPE_CHECKING

from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.server.app import create_app
    from ninfer.server.options import ServedEngineOptions, ServerOptions, check_server
    from ninfer.server.service import Service

__all__ = [
    "ServedEngineOptions",
    "ServerOptions",
    "Service",
    "check_server",
    "create_app",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ServedEngineOptions": "ninfer.server.options",
        "ServerOptions": "ninfer.server.options",
        "Service": "ninfer.server.service",
        "check_server": "ninfer.server.options",
        "create_app": "ninfer.server.app",
    },
)
