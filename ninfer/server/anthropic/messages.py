"""POST /v1/messages and /v1/messages/count_tokens."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ninfer.server.anthropic.ask import ask_of, understand
from ninfer.server.anthropic.reply import MessageReply, MessageStream
from ninfer.server.anthropic.schema import CountBody, MessagesBody
from ninfer.server.blocks import collect_blocks
from ninfer.server.body import checked, read_object
from ninfer.server.pages import described
from ninfer.server.reply import json_response, stream
from ninfer.server.service import Service

router = APIRouter(tags=["anthropic"])


# What this protocol says where others say 429.
_FULL: Final[dict[int | str, dict[str, Any]]] = {529: {"description": "All places are taken."}}


@router.post("/messages", openapi_extra=described(MessagesBody), responses=_FULL)
async def messages(request: Request) -> Response:
    """Answer a conversation, whole or as a stream of events."""
    service: Service = request.app.state.service
    body = checked(MessagesBody, await read_object(request, service.options.max_request_mib << 20))
    exchange = await service.open(ask_of(body, service), request)
    reply = MessageReply(exchange, body)
    if body.stream:
        return stream(exchange, MessageStream(reply), service.keep_alive)
    return json_response(reply.whole(await collect_blocks(exchange)))


@router.post("/messages/count_tokens", openapi_extra=described(CountBody))
async def count_tokens(request: Request) -> Response:
    """Tokens of the prompt that the same body would have."""
    service: Service = request.app.state.service
    body = checked(CountBody, await read_object(request, service.options.max_request_mib << 20))
    found = understand(body, service)
    prompt = await service.prepare(found.conversation, request.state.key)
    return json_response({"input_tokens": len(prompt.token_ids)})
