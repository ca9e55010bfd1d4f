"""POST /v1/responses, and what else there is of stored responses."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ninfer.errors import ContextError
from ninfer.server.blocks import collect_blocks
from ninfer.server.body import checked, read_object
from ninfer.server.errors import Refusal, fault_of
from ninfer.server.pages import described
from ninfer.server.reply import json_response, stream
from ninfer.server.responses.ask import ask_of, understand
from ninfer.server.responses.reply import ResponseReply
from ninfer.server.responses.schema import ResponsesBody
from ninfer.server.responses.store import Record, new_record
from ninfer.server.responses.stream import ResponseStream
from ninfer.server.service import Service
from ninfer.server.sse import EventStream

router = APIRouter(tags=["openai"])
_MOST_ITEMS: Final = 100
_ITEMS: Final = 20


@router.post("/responses", openapi_extra=described(ResponsesBody))
async def responses(request: Request) -> Response:
    """Answer items, whole or as a stream of events, and store the response."""
    service: Service = request.app.state.service
    body = checked(ResponsesBody, await _read(request, service))
    owner = request.state.key.number
    found = understand(body, service, owner)
    ask = ask_of(body, found, service)
    drawn = service.engine.engine.sampling_params(ask.options)
    reply = ResponseReply(ask, body, found.tools, drawn, service.text)

    def keep(response: dict[str, Any]) -> None:
        if body.store:
            service.responses.put(new_record(owner, response, found.items, found.previous))

    try:
        exchange = await service.open(ask, request)
    except ContextError as error:
        if not body.stream:
            raise
        # Agents know this state by the event, and take a status for the end of the turn.
        return EventStream(_failed(ResponseStream(reply, None, keep), error))
    if body.stream:
        return stream(exchange, ResponseStream(reply, exchange, keep), service.keep_alive)
    response = reply.ended(await collect_blocks(exchange), exchange.usage())
    keep(response)
    return json_response(response)


async def _failed(writer: ResponseStream, error: ContextError) -> AsyncGenerator[bytes, None]:
    yield writer.begin()
    yield writer.failed(fault_of(error))


@router.post("/responses/input_tokens", openapi_extra=described(ResponsesBody))
async def input_tokens(request: Request) -> Response:
    """Tokens of the prompt that the same body would have."""
    service: Service = request.app.state.service
    body = checked(ResponsesBody, await _read(request, service))
    found = understand(body, service, request.state.key.number)
    prompt = await service.prepare(found.conversation, request.state.key)
    count = len(prompt.token_ids)
    return json_response({"object": "response.input_tokens", "input_tokens": count})


@router.post("/responses/compact")
async def compact() -> Response:
    """Never done here."""
    raise Refusal(
        "conversations are not compacted here; let the client summarise them",
        code="compaction_not_supported",
    )


@router.get("/responses/{name}")
async def stored(request: Request, name: str) -> Response:
    """A stored response."""
    if request.query_params.get("stream", "false").lower() not in ("false", "0"):
        raise Refusal(
            "stream: only responses under way could be streamed; leave it out",
            code="unsupported_value",
            param="stream",
        )
    return json_response(_record(request, name).response)


@router.delete("/responses/{name}")
async def delete(request: Request, name: str) -> Response:
    """Forget a stored response."""
    _record(request, name)
    service: Service = request.app.state.service
    service.responses.delete(request.state.key.number, name)
    return json_response({"id": name, "object": "response", "deleted": True})


@router.post("/responses/{name}/cancel")
async def cancel(request: Request, name: str) -> Response:
    """Never done here: a stored response has ended."""
    _record(request, name)
    raise Refusal(
        "only responses of the background can be cancelled; close the connection instead",
        code="unsupported_value",
        param="response_id",
    )


@router.get("/responses/{name}/input_items")
async def input_items(request: Request, name: str) -> Response:
    """The items that a stored response answered, newest first unless asked otherwise."""
    record = _record(request, name)
    items = [*record.history, *record.input]
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise _unsupported("order", order, "use asc or desc")
    if order == "desc":
        items.reverse()
    items = _between(items, request.query_params.get("after"))
    limit = _limit(request.query_params.get("limit", str(_ITEMS)))
    shown = items[:limit]
    return json_response(
        {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": len(items) > limit,
        }
    )


def _between(items: list[dict[str, Any]], after: str | None) -> list[dict[str, Any]]:
    if after is None:
        return items
    places = [index for index, item in enumerate(items) if item["id"] == after]
    if not places:
        raise _unsupported("after", after, "name an item of the list")
    return items[places[0] + 1 :]


def _limit(given: str) -> int:
    if not given.isdecimal() or not 1 <= int(given[:9]) <= _MOST_ITEMS:
        raise _unsupported("limit", given, f"use 1 to {_MOST_ITEMS}")
    return int(given)


def _unsupported(name: str, value: str, advice: str) -> Refusal:
    return Refusal(f"{name} is {value[:80]!r}; {advice}", code="unsupported_value", param=name)


def _record(request: Request, name: str) -> Record:
    service: Service = request.app.state.service
    record = service.responses.get(request.state.key.number, name)
    if record is None:
        raise Refusal(
            f"Response with id '{name[:80]}' not found.",
            status=404,
            code="response_not_found",
            param="response_id",
        )
    return record


async def _read(request: Request, service: Service) -> dict[str, Any]:
    return await read_object(request, service.options.max_request_mib << 20)
