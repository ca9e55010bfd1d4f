"""Members: what the bodies of requests, and the objects in them, are made of."""

from pydantic import BaseModel, ConfigDict, model_validator


class Members(BaseModel):
    """An object of a request. Types are strict, unknown names are left out, null is not given."""

    model_config = ConfigDict(extra="ignore", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _less_null(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}
