"""What the OpenAPI page says of bodies that the routes read themselves."""

from typing import Any

from pydantic import BaseModel


def described(schema: type[BaseModel]) -> dict[str, Any]:
    """The part of an operation that names its body's schema, written out in full."""
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema.model_json_schema()}},
        },
    }
