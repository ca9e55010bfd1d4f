"""What a user may ask of `ninfer chat`: defaults, help and checks."""

from dataclasses import dataclass, fields
from typing import Any, Final

from ninfer.errors import UsageError
from ninfer.options import option

DEFAULT_KEY_ENV: Final = "NINFER_API_KEY"
_PRESET: Final = "the model's preset"
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How the model is asked. None means "not given": the server's own value holds."""

    system: str | None = option(None, "system text", metavar="TEXT", unset="none")
    model: str | None = option(
        None, "model name, for a server", metavar="NAME", unset="the first that the server lists"
    )
    key_env: str = option(
        DEFAULT_KEY_ENV, "variable that holds the server's key", metavar="VARIABLE"
    )
    max_new: int | None = option(
        None,
        "tokens of an answer at most",
        metavar="N",
        unset="the server's limit; what the context holds, for an artifact",
    )
    thinking: bool = option(True, "answer without thinking first")
    reasoning_effort: str | None = option(
        None, "how long to think, where the chat template offers it", choices=EFFORTS
    )
    temperature: float | None = option(None, "0..2; 0 is greedy", metavar="X", unset=_PRESET)
    top_p: float | None = option(None, "0..1, nucleus to draw from", metavar="X", unset=_PRESET)
    top_k: int | None = option(None, "best tokens to draw from", metavar="N", unset=_PRESET)
    min_p: float | None = option(
        None, "0..1, least weight relative to the best", metavar="X", unset=_PRESET
    )
    presence_penalty: float | None = option(None, "-2..2", metavar="X", unset=_PRESET)
    frequency_penalty: float | None = option(None, "-2..2", metavar="X", unset=_PRESET)
    seed: int | None = option(None, "same seed and conversation, same answer", metavar="N")


# Names of the request's fields where they are not those of the options.
_FIELDS: Final = {"max_new": "max_completion_tokens"}
_NOT_SENT: Final = frozenset({"system", "model", "key_env", "thinking"})


def given_values(options: ChatOptions) -> dict[str, Any]:
    """The values that were given and say how to generate, by option name."""
    names = [spec.name for spec in fields(options) if spec.name not in _NOT_SENT]
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def request_fields(options: ChatOptions) -> dict[str, Any]:
    """The members of a chat completion request that these options ask for."""
    body = {_FIELDS.get(name, name): value for name, value in given_values(options).items()}
    if not options.thinking:
        body["chat_template_kwargs"] = {"enable_thinking": False}
    return body


def check_chat(options: ChatOptions) -> None:
    """Raises UsageError naming the option and the value that is wrong."""
    ranges = {
        "temperature": (0.0, 2.0),
        "top_p": (0.0, 1.0),
        "min_p": (0.0, 1.0),
        "presence_penalty": (-2.0, 2.0),
        "frequency_penalty": (-2.0, 2.0),
    }
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:  # NaN is in no range
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} {value}: must be {low:g}..{high:g}")
    if options.max_new is not None and options.max_new < 1:
        raise UsageError(f"--max-new {options.max_new}: must be positive")
    if options.top_k is not None and options.top_k < 0:
        raise UsageError(f"--top-k {options.top_k}: must be 0 or more")
