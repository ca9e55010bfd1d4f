"""GET /v1/models: the one model, with its context length under every name that clients read."""

from datetime import UTC, datetime
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ninfer.server.errors import Refusal
from ninfer.server.reply import json_response
from ninfer.server.service import Service

router = APIRouter(tags=["models"])
NAME: Final = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}


@router.get("/models")
async def models(request: Request) -> Response:
    """The model under all its names, in the forms of OpenAI and Anthropic at once."""
    service: Service = request.app.state.service
    listed = [model_of(service, name) for name in service.names]
    return json_response(
        {
            "object": "list",
            "data": listed,
            "has_more": False,
            "first_id": listed[0]["id"],
            "last_id": listed[-1]["id"],
        }
    )


@router.get("/models/{model:path}", openapi_extra={"parameters": [NAME]})
async def model(request: Request) -> Response:
    """The model of a name."""
    service: Service = request.app.state.service
    model: str = request.path_params["model"]
    if model not in service.names:
        raise Refusal(
            f"the model {model[:80]!r} does not exist; this server has {', '.join(service.names)}",
            status=404,
            code="model_not_found",
            param="model",
        )
    return json_response(model_of(service, model))


def model_of(service: Service, name: str) -> dict[str, Any]:
    """One model, as any client would have it."""
    facts, most = service.facts, service.facts.max_context
    inputs = ["text", *(["image", "video"] if facts.vision else [])]
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": service.created,
        "created_at": datetime.fromtimestamp(service.created, UTC).isoformat(),
        "owned_by": "ninfer",
        "name": name,
        "display_name": name,
        "root": service.model,
        "parent": None,
        "permission": [],
        "max_model_len": most,
        "context_length": most,
        "context_window": most,
        "max_context_length": most,
        "loaded_context_length": most,
        "max_input_tokens": most,
        "max_output_length": most,
        "max_tokens": most,
        "meta": {"n_ctx": most, "n_ctx_train": most},
        "input_modalities": inputs,
        "output_modalities": ["text"],
        "architecture": {"input_modalities": inputs, "output_modalities": ["text"]},
        "top_provider": {"context_length": most, "max_completion_tokens": most},
        "capabilities": {"vision": facts.vision, "tools": True, "reasoning": True},
    }
