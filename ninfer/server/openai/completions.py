"""POST /v1/completions: texts and token ids, continued as they stand."""

from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ninfer.server.ask import Ask, RawPrompt
from ninfer.server.body import checked, read_object
from ninfer.server.errors import Refusal
from ninfer.server.openai.completion_reply import CompletionReply, CompletionStream
from ninfer.server.openai.fields import SamplingFields, check_shared, form_of, options_of
from ninfer.server.openai.schema import MOST_TOP_LOGPROBS
from ninfer.server.pages import described
from ninfer.server.reply import stream, whole
from ninfer.server.service import Service

router = APIRouter(tags=["openai"])

_DEFAULT_TOKENS: Final = 16
_REFUSED: Final = {"suffix": "put the text before the gap into prompt"}
# What an empty prompt is continued from.
_START: Final = "<|endoftext|>"
Ids = list[Annotated[int, Field(ge=0)]]


class CompletionBody(SamplingFields):
    """POST /v1/completions."""

    prompt: str | Ids | list[str] | list[Ids]
    max_tokens: Annotated[int, Field(ge=0)] = _DEFAULT_TOKENS
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    echo: bool = False
    response_format: Any = None


@router.post("/completions", openapi_extra=described(CompletionBody))
async def completions(request: Request) -> Response:
    """Continue prompts, whole or as a stream of chunks."""
    service: Service = request.app.state.service
    value = await read_object(request, service.options.max_request_mib << 20)
    body = checked(CompletionBody, value)
    exchange = await service.open(ask_of(body, service), request)
    reply = CompletionReply(exchange, body, service.text)
    if body.stream:
        return stream(exchange, CompletionStream(reply), service.keep_alive)
    return await whole(exchange, reply.whole)


def ask_of(body: CompletionBody, service: Service) -> Ask:
    """Translate. Raises Refusal naming the member that is wrong."""
    model = service.check_model(body.model)
    check_shared(body, service, _REFUSED)
    if body.max_tokens == 0 and not body.echo:
        raise Refusal(
            "max_tokens 0 is only for echo: true", code="unsupported_value", param="max_tokens"
        )
    prompts = _prompts(body.prompt)
    if not prompts:
        raise Refusal("prompt is an empty list", code="unsupported_value", param="prompt")
    # One token is drawn and not shown where none is asked for.
    options = options_of(body, service, max(body.max_tokens, 1), service.defaults)
    form = form_of(body, body.response_format)
    echoed = body.logprobs if body.echo else None
    return Ask(
        protocol="completions",
        model=model,
        stream=body.stream,
        options=replace(
            options,
            thinking=False,
            raw_output=True,
            logprobs=body.logprobs,
            prompt_logprobs=echoed,
            program=replace(options.program, constraint=form),
        ),
        prompts=prompts,
        count=body.n,
        stop_text_shown=body.include_stop_str_in_output,
        stop_token_shown=not body.skip_special_tokens,
        max_tokens=body.max_tokens,
    )


def _prompts(given: str | list[Any]) -> tuple[RawPrompt, ...]:
    if isinstance(given, str):
        return (_prompt(given),)
    if given and isinstance(given[0], int):
        return (_prompt(given),)
    return tuple(map(_prompt, given))


def _prompt(given: str | list[int]) -> RawPrompt:
    if isinstance(given, str):
        return RawPrompt(given or _START)
    return RawPrompt(token_ids=tuple(given)) if given else RawPrompt(_START)
