"""POST /v1/chat/completions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ninfer.server.body import checked, read_object
from ninfer.server.openai.chat_ask import ask_of
from ninfer.server.openai.chat_reply import ChatReply, ChatStream
from ninfer.server.openai.schema import ChatBody
from ninfer.server.pages import described
from ninfer.server.reply import stream, whole
from ninfer.server.service import Service

router = APIRouter(tags=["openai"])


@router.post("/chat/completions", openapi_extra=described(ChatBody))
async def chat(request: Request) -> Response:
    """Answer a conversation, whole or as a stream of chunks."""
    service: Service = request.app.state.service
    body = checked(ChatBody, await read_object(request, service.options.max_request_mib << 20))
    exchange = await service.open(ask_of(body, service), request)
    reply = ChatReply(exchange, body, service.text)
    if body.stream:
        return stream(exchange, ChatStream(reply), service.keep_alive)
    return await whole(exchange, reply.whole)
