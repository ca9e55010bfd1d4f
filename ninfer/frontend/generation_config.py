"""What a checkpoint's generation_config.json says: the ids that end a turn, and how to sample."""

from collections.abc import Mapping
from typing import Any, Final

from ninfer.errors import ArtifactError
from ninfer.frontend.tokenizer import Tokenizer
from ninfer.json_text import parse_json
from ninfer.request import SamplingParams

GENERATION_CONFIG: Final = "frontend/generation_config.json"

# They end a turn whatever the file says.
_TURN_ENDS: Final = ("<|im_end|>", "<|endoftext|>")
# Member -> lowest and highest value, and the value that stands for a member that is missing.
_NUMBERS: Final[Mapping[str, tuple[float, float, float]]] = {
    "temperature": (0.0, 2.0, 1.0),
    "top_p": (0.0, 1.0, 1.0),
    "min_p": (0.0, 1.0, 0.0),
    "presence_penalty": (-2.0, 2.0, 0.0),
    "frequency_penalty": (-2.0, 2.0, 0.0),
    "repetition_penalty": (0.0, 10.0, 1.0),
}


def stop_ids(data: bytes, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Sorted ids that end a turn, from `eos_token_id` and the turn-end tokens.

    Raises ArtifactError for an id that the tokenizer does not have.
    """
    given = _members(data).get("eos_token_id")
    ids = {tokenizer.special[text] for text in _TURN_ENDS if text in tokenizer.special}
    for token_id in given if isinstance(given, list) else [] if given is None else [given]:
        if type(token_id) is not int or not 0 <= token_id < tokenizer.addressable:
            raise ArtifactError(
                f"resource {GENERATION_CONFIG}: eos_token_id {token_id!r} is not an id of the"
                f" tokenizer (0..{tokenizer.addressable - 1})"
            )
        ids.add(token_id)
    return tuple(sorted(ids))


def sampling_defaults(data: bytes) -> SamplingParams:
    """How to sample when a request does not say: greedily, unless `do_sample` is true.

    With it, `temperature`, `top_p`, `top_k`, `min_p` and the presence, frequency and repetition
    penalties are read; a missing one changes nothing about the model's own distribution. Raises
    ArtifactError for a value outside its range.
    """
    members = _members(data)
    sampled = members.get("do_sample", False)
    if not isinstance(sampled, bool):
        raise ArtifactError(
            f"resource {GENERATION_CONFIG}: do_sample is {sampled!r}, must be true or false"
        )
    if not sampled:
        return SamplingParams()
    top_k = members.get("top_k", 0)
    if type(top_k) is not int or top_k < 0:
        raise ArtifactError(
            f"resource {GENERATION_CONFIG}: top_k is {top_k!r}, must be a whole number from 0"
        )
    numbers: dict[str, Any] = {name: _number(members, name) for name in _NUMBERS}
    return SamplingParams(**numbers, top_k=top_k)


def _number(members: Mapping[str, Any], name: str) -> float:
    low, high, missing = _NUMBERS[name]
    value = members.get(name, missing)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Logits are divided by the repetition penalty.
    is_zero = name == "repetition_penalty" and value == 0
    if not is_number or is_zero or not low <= value <= high:
        raise ArtifactError(
            f"resource {GENERATION_CONFIG}: {name} is {value!r}, must be between {low:g} and"
            f" {high:g}{' and not 0' if is_zero else ''}"
        )
    return float(value)


def _members(data: bytes) -> Mapping[str, Any]:
    config = parse_json(data, f"resource {GENERATION_CONFIG}", ArtifactError)
    return config if isinstance(config, dict) else {}
