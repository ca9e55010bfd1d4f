"""Members that the OpenAI protocols share: how tokens are drawn and where an answer stops."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from ninfer.engine import GenerationOptions
from ninfer.engine.program import ProgramOptions
from ninfer.request import (
    REPETITION_BOUNDS,
    ChoiceSpec,
    ConstraintSpec,
    GrammarSpec,
    JsonObjectSpec,
    JsonSchemaSpec,
    LogitBias,
    RegexSpec,
)
from ninfer.server.errors import Refusal
from ninfer.server.members import Members
from ninfer.server.service import Service

Text = Annotated[str, Field(min_length=1)]
_SEEDS: Final = 2**63
# Sent by many clients for other servers or for accounting; no answer depends on them.
HARMLESS: Final = frozenset(
    {
        "client_metadata",
        "context_management",
        "id_slot",
        "keep_alive",
        "kv_transfer_params",
        "max_tool_calls",
        "metadata",
        "moderation",
        "n_predict",
        "num_ctx",
        "options",
        "priority",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "provider",
        "request_id",
        "return_progress",
        "return_tokens_as_token_ids",
        "route",
        "safety_identifier",
        "samplers",
        "service_tier",
        "store",
        "think",
        "timings_per_token",
        "transforms",
        "usage",
        "user",
        "verbosity",
    }
)


class StreamOptions(Members):
    """What a stream carries besides the answer."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class StructuredOutputs(Members):
    """The form of the answer, in vLLM's words."""

    json_: Annotated[Any, Field(alias="json")] = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class SamplingFields(Members):
    """Drawing, stopping and the form of an answer."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**30)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: (
        Annotated[float, Field(ge=REPETITION_BOUNDS[0], le=REPETITION_BOUNDS[1])] | None
    ) = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-_SEEDS, lt=2 * _SEEDS)] | None = None
    stop: Text | list[Text] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    ignore_eos: bool = False
    min_tokens: Annotated[int, Field(ge=0, le=2**30)] = 0
    n: Annotated[int, Field(ge=1, le=1024)] = 1
    best_of: int | None = None
    use_beam_search: bool | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None
    cache_salt: Text | None = None
    cache_prompt: bool = True
    return_token_ids: bool = False

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_running_usage(self) -> bool:
        """Whether each chunk of a stream has the usage so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    def texts_that_stop(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def check_shared(body: SamplingFields, service: Service, refused: Mapping[str, str]) -> None:
    """Refuse what would change the answer and cannot be had; note names that mean nothing here.

    `refused` maps members to what to do instead; their null, false and empty values ask nothing.
    """
    extra = body.model_extra or {}
    for name, advice in refused.items():
        if extra.get(name):
            raise Refusal(
                f"{name} is not supported; {advice}", code="unknown_parameter", param=name
            )
    if body.best_of is not None and body.best_of > 1:
        raise Refusal("best_of is not supported; use n", code="unsupported_value", param="best_of")
    if body.use_beam_search:
        raise Refusal(
            "use_beam_search is not supported; leave it out",
            code="unsupported_value",
            param="use_beam_search",
        )
    if body.stream_options is not None and not body.stream:
        raise Refusal(
            "stream_options is only for streams; set stream to true, or leave it out",
            code="unsupported_value",
            param="stream_options",
        )
    unknown = set(extra) - HARMLESS - set(refused)
    if unknown:
        service.note_unknown(unknown)


def options_of(
    body: SamplingFields, service: Service, asked: int | None, base: GenerationOptions
) -> GenerationOptions:
    """The generation's options: those of the request over `base`. `asked` is the output limit.

    Raises Refusal naming a member.
    """
    given: dict[str, Any] = {
        name: value
        for name in (
            "top_p",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
        )
        if (value := getattr(body, name)) is not None
    }
    if body.top_k is not None:
        given["top_k"] = max(body.top_k, 0)
    if body.temperature is not None and not base.greedy:
        given["temperature"] = body.temperature
    return replace(
        base,
        **given,
        max_new=base.max_new if asked is None else asked,
        seed=service.seed(body.seed),
        stop=body.texts_that_stop(),
        stop_token_id=_ids(body.stop_token_ids or (), "stop_token_ids", service),
        logit_bias=_biases(body.logit_bias or {}, service),
        program=ProgramOptions(
            ignore_stops=body.ignore_eos,
            min_tokens=body.min_tokens,
            cache_salt=_salt(body, service),
        ),
    )


def _salt(body: SamplingFields, service: Service) -> bytes:
    """A salt that no other request has keeps a prompt from being reused."""
    if not body.cache_prompt:
        return service.seed(None).to_bytes(8, "little")
    return (body.cache_salt or "").encode("utf-8", "surrogatepass")


def _ids(ids: Iterable[int], member: str, service: Service) -> tuple[int, ...]:
    most = service.text.addressable - 1
    for token_id in ids:
        if not 0 <= token_id <= most:
            raise Refusal(
                f"{member} has {token_id}; the model's ids are 0..{most}",
                code="unsupported_value",
                param=member,
            )
    return tuple(dict.fromkeys(ids))


def _biases(given: Mapping[str, float], service: Service) -> tuple[LogitBias, ...]:
    biases = {}
    for name, value in given.items():
        if not (name.isascii() and name.isdecimal() and len(name) < 10):
            raise Refusal(
                f"logit_bias has the member {name[:80]!r}; members are token ids in decimal",
                code="unsupported_value",
                param="logit_bias",
            )
        biases[int(name)] = value
    _ids(biases, "logit_bias", service)
    return tuple(LogitBias(token_id, float(value)) for token_id, value in biases.items())


def form_of(body: SamplingFields, response_format: object = None) -> ConstraintSpec | None:
    """The form that an answer must have, said in one of several ways.

    Raises Refusal for two at once, or for a form that does not exist.
    """
    nested = body.structured_outputs
    given = {
        "response_format": response_format_of(response_format),
        "guided_json": _json_form(body.guided_json, "guided_json"),
        "guided_regex": None if body.guided_regex is None else RegexSpec(body.guided_regex),
        "guided_choice": None if body.guided_choice is None else _choice(body.guided_choice),
        "guided_grammar": None if body.guided_grammar is None else GrammarSpec(body.guided_grammar),
    }
    if nested is not None:
        given |= {
            "structured_outputs.json": _json_form(nested.json_, "structured_outputs.json"),
            "structured_outputs.regex": None if nested.regex is None else RegexSpec(nested.regex),
            "structured_outputs.choice": None if nested.choice is None else _choice(nested.choice),
            "structured_outputs.grammar": (
                None if nested.grammar is None else GrammarSpec(nested.grammar)
            ),
            "structured_outputs.json_object": JsonObjectSpec() if nested.json_object else None,
        }
    found = {name: form for name, form in given.items() if form is not None}
    if len(found) > 1:
        first, second, *_ = found
        raise Refusal(
            f"{first} and {second} both give the form of the answer; give one of them",
            code="unsupported_value",
            param=second,
        )
    return next(iter(found.values()), None)


def _choice(choices: Iterable[str]) -> ChoiceSpec:
    return ChoiceSpec(tuple(choices))


def _json_form(schema: object, member: str) -> ConstraintSpec | None:
    if schema is None:
        return None
    if not isinstance(schema, dict | bool):
        raise Refusal(
            f"{member} must be a JSON Schema object", code="invalid_json_schema", param=member
        )
    return JsonSchemaSpec(schema)


def response_format_of(given: object) -> ConstraintSpec | None:
    """The form that `response_format` names. Raises Refusal for one that it does not name well."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise Refusal(
            "response_format must be an object with a type",
            code="invalid_type",
            param="response_format",
        )
    kind = given.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return JsonObjectSpec()
    if kind == "json_schema":
        nested = given.get("json_schema")
        schema = nested.get("schema") if isinstance(nested, dict) else given.get("schema")
        if schema is None:
            raise Refusal(
                "response_format.json_schema.schema is missing",
                code="missing_required_parameter",
                param="response_format",
            )
        return _json_form(schema, "response_format.json_schema.schema")
    pattern = given.get("pattern", given.get("regex"))
    if kind == "regex" and isinstance(pattern, str):
        return RegexSpec(pattern)
    if kind == "grammar" and isinstance(given.get("grammar"), str):
        return GrammarSpec(given["grammar"])
    raise Refusal(
        f"response_format.type is {str(kind)[:80]!r}; use text, json_object or json_schema",
        code="unsupported_value",
        param="response_format",
    )
