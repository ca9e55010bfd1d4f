"""What a server says about its models, under the names that servers use for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_CONTEXT: Final = (
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "loaded_context_length",
    "n_ctx",
)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model that a server has. `context` is in tokens; None when the server does not say."""

    id: str
    context: int | None = None
    vision: bool = False


def parse_models(body: Any) -> list[ModelCard]:
    """The models of a `/v1/models` body; entries without a name are left out."""
    data = body.get("data") if isinstance(body, Mapping) else None
    entries = data if isinstance(data, Sequence) and not isinstance(data, str) else ()
    return [
        ModelCard(entry["id"], _context(entry), _vision(entry))
        for entry in entries
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str) and entry["id"]
    ]


def _context(entry: Mapping[str, Any]) -> int | None:
    meta = entry.get("meta")
    places = [entry, meta] if isinstance(meta, Mapping) else [entry]
    for place in places:
        for name in _CONTEXT:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def _vision(entry: Mapping[str, Any]) -> bool:
    able = entry.get("capabilities")
    if isinstance(able, Mapping) and "vision" in able:
        return bool(able["vision"])
    if isinstance(able, Sequence) and "vision" in able:
        return True
    architecture = entry.get("architecture")
    for place in (entry, architecture if isinstance(architecture, Mapping) else {}):
        inputs = place.get("input_modalities")
        if isinstance(inputs, Sequence) and "image" in inputs:
            return True
    return False
