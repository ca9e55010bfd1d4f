"""What the OpenAPI page says of bodies that the routes read themselves, and of errors."""

from typing import Any, Final

from pydantic import BaseModel

# The statuses that any route may answer with besides 200.
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"description": "The request is malformed, or asks for what cannot be had."},
    401: {"description": "The API key is missing or wrong."},
    403: {"description": "The host or the origin is not one of this server's."},
    404: {"description": "There is no such model, response or path."},
    405: {"description": "The method is not for this path."},
    413: {"description": "The body is too large."},
    415: {"description": "The body is compressed, or is no JSON."},
    429: {"description": "All places are taken, or a limit of the key is reached."},
    500: {"description": "The server failed on this request."},
    503: {"description": "The engine serves nobody now, or no place became free in time."},
}


def described(schema: type[BaseModel]) -> dict[str, Any]:
    """The part of an operation that names its body's schema, written out in full."""
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _written_out(schema)}},
        },
    }


def _written_out(schema: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model, with its definitions in the places that refer to them."""
    whole = schema.model_json_schema()
    definitions = whole.pop("$defs", {})

    def inside(value: Any) -> Any:
        if isinstance(value, list):
            return [inside(item) for item in value]
        if not isinstance(value, dict):
            return value
        name = str(value.get("$ref", "")).removeprefix("#/$defs/")
        if name in definitions:
            return inside(definitions[name])
        return {key: inside(item) for key, item in value.items()}

    written: dict[str, Any] = inside(whole)
    return written
