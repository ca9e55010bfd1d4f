"""POST /tokenize and /detokenize, in the forms of vLLM and llama.cpp."""

from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ninfer.engine import parse_conversation
from ninfer.server import thinking
from ninfer.server.ask import RawPrompt
from ninfer.server.body import checked, read_object
from ninfer.server.errors import Refusal
from ninfer.server.keys import Key
from ninfer.server.members import Members
from ninfer.server.openai.final_message import ended
from ninfer.server.openai.schema import TemplateFields
from ninfer.server.pages import described
from ninfer.server.reply import json_response
from ninfer.server.service import Service
from ninfer.server.shapes import ChatMessages, ChatTools

router = APIRouter(tags=["tokens"])
_MOST_ID: Final = 2**31


class TokenizeBody(Members):
    """A text, or a conversation as it would be rendered."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: ChatMessages | None = None
    tools: ChatTools | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool = False
    return_token_strs: bool = False
    chat_template_kwargs: TemplateFields | None = None


class DetokenizeBody(Members):
    """Token ids."""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, lt=_MOST_ID)]]


@router.post("/tokenize", openapi_extra=described(TokenizeBody))
async def tokenize(request: Request) -> Response:
    """Token ids of a text or a conversation."""
    service: Service = request.app.state.service
    body = checked(TokenizeBody, await read_object(request, service.options.max_request_mib << 20))
    service.check_model(body.model)
    ids = await _ids(body, service, request.state.key)
    reply: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": service.facts.max_context,
        "tokens": ids,
    }
    if body.return_token_strs:
        reply["token_strs"] = [service.text.decode([token_id]) for token_id in ids]
    return json_response(reply)


async def _ids(body: TokenizeBody, service: Service, key: Key) -> list[int]:
    text = body.content if body.prompt is None else body.prompt
    if (text is None) == (body.messages is None):
        raise Refusal(
            "give either prompt or messages", code="missing_required_parameter", param="prompt"
        )
    if text is not None:
        return list((await service.raw_prompt(RawPrompt(text))).token_ids)
    kwargs = body.chat_template_kwargs or TemplateFields()
    _, template = thinking.apply(
        thinking.thinking_of(kwargs.model_dump()),
        service.defaults,
        service.text,
        preserve=service.options.preserve_thinking,
    )
    conversation = ended(
        parse_conversation(body.messages, body.tools, template),
        body.add_generation_prompt,
        body.continue_final_message,
    )
    return list((await service.prepare(conversation, key)).token_ids)


@router.post("/detokenize", openapi_extra=described(DetokenizeBody))
async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    service: Service = request.app.state.service
    value = await read_object(request, service.options.max_request_mib << 20)
    body = checked(DetokenizeBody, value)
    service.check_model(body.model)
    prompt = await service.raw_prompt(RawPrompt(token_ids=tuple(body.tokens)))
    return json_response({"prompt": prompt.text, "content": prompt.text})
