"""The body of a request: read within a limit, parsed strictly, checked against a schema."""

import asyncio
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from ninfer.errors import PromptError
from ninfer.json_text import parse_json
from ninfer.server.errors import Refusal

Schema = TypeVar("Schema", bound=BaseModel)
_SHOWN: Final = 80
_LARGE: Final = 1 << 20
_CODES: Final = {"missing": "missing_required_parameter", "extra_forbidden": "unknown_parameter"}


async def read_body(request: Request, most: int) -> bytes:
    """All bytes of the body. Raises Refusal beyond `most`, for a compressed or a cut one."""
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise Refusal(
            f"content-encoding {encoding[:_SHOWN]}: send the body uncompressed",
            status=415,
            code="unsupported_content_encoding",
        )
    _check_kind(request.headers.get("content-type", ""))
    declared = request.headers.get("content-length", "0")
    pieces: list[bytes] = []
    size = int(declared) if declared.isdecimal() else 0
    if size <= most:
        size = 0
        try:
            async for piece in request.stream():
                size += len(piece)
                if size > most:
                    break
                pieces.append(piece)
        except ClientDisconnect:
            raise Refusal(
                "the connection closed before the end of the body; send it again",
                code="incomplete_body",
            ) from None
    if size > most:
        raise Refusal(
            f"the body has more than {most:,} bytes; send less or raise --max-request-mib",
            status=413,
            code="request_too_large",
        )
    return b"".join(pieces)


def _check_kind(content_type: str) -> None:
    """JSON by any name, and what clients send that name none."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        raise Refusal(
            f"content-type {kind[:_SHOWN]}: send JSON", status=415, code="unsupported_content_type"
        )


async def read_object(request: Request, most: int) -> dict[str, Any]:
    """The body as a JSON object, kept in `request.state.body`. Raises Refusal for anything else."""
    data = await read_body(request, most)
    if not data.strip():
        raise Refusal("the body is empty; send a JSON object", code="invalid_json")
    try:
        if len(data) > _LARGE:
            # Pictures of many megabytes: the streams of others go on meanwhile.
            value = await asyncio.to_thread(parse_json, data, "the body", PromptError)
        else:
            value = parse_json(data, "the body", PromptError)
    except PromptError as error:
        raise Refusal(str(error), code="invalid_json") from None
    if not isinstance(value, dict):
        raise Refusal(
            f"the body is a JSON {type(value).__name__}; send an object", code="invalid_json"
        )
    request.state.body = value
    return value


def checked(schema: type[Schema], value: dict[str, Any]) -> Schema:
    """An object of the schema.

    Raises Refusal naming the member that is wrong.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise _refusal(error) from None
    except RecursionError:
        raise Refusal("the body is nested too deeply", code="invalid_json") from None


def _refusal(error: ValidationError) -> Refusal:
    first = error.errors(include_url=False, include_context=False)[0]
    # Branches of a union have places of their own, which are words of ours.
    member = place(first["loc"])
    shown = repr(first.get("input"))
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    text = first["msg"][:1].lower() + first["msg"][1:]
    if first["type"] == "missing":
        text, shown = "it is required", "missing"
    code = _CODES.get(
        first["type"], "invalid_type" if "type" in first["type"] else "unsupported_value"
    )
    return Refusal(f"{member} is {shown}; {text}", code=code, param=member)


def place(steps: tuple[int | str, ...]) -> str:
    """A path as clients write it: tools[0].function.name."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier():
            text += f".{step}" if text else step
    return text or "body"
