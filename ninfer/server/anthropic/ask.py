"""A Messages body to an Ask."""

from dataclasses import dataclass, replace
from typing import Any, Final

from ninfer.engine import GenerationOptions, normalise
from ninfer.engine.program import ProgramOptions
from ninfer.request import Conversation, JsonSchemaSpec, Message
from ninfer.server import thinking
from ninfer.server.anthropic.content import turns_of
from ninfer.server.anthropic.schema import HARMLESS, REFUSED, CountBody, MessagesBody
from ninfer.server.anthropic.tools import Tools, choice_of, tools_of
from ninfer.server.ask import Ask
from ninfer.server.errors import Refusal
from ninfer.server.service import Service
from ninfer.server.system_turns import settle_system
from ninfer.server.thinking import Thinking, one_of
from ninfer.server.tools import check_choice, constraint_of, without_calls

_OFF: Final = "disabled"


@dataclass(frozen=True, slots=True)
class Understood:
    """A body whose prompt is known: the same for an answer and for counting."""

    conversation: Conversation
    tools: Tools
    options: GenerationOptions


def understand(body: CountBody, service: Service) -> Understood:
    """Translate what the prompt depends on. Raises Refusal or PromptError naming the member."""
    _check_members(body, service)
    tools = tools_of(body.tools or [])
    service.note_unknown({f"tools of type {kind}" for kind in tools.hosted.values()})
    turns = settle_system(turns_of(body.messages, body.system))
    turns, begun = _begun(turns)
    if not any(turn.role == "user" for turn in turns):
        # Templates want a question; a conversation may begin with an answer here.
        turns.insert(sum(turn.role == "system" for turn in turns), Message("user"))
    options, template = thinking.apply(
        _wishes(body, begun), service.defaults, service.text, preserve=_preserves(service)
    )
    conversation = Conversation(normalise(turns), tools.shown, template, begun)
    return Understood(conversation, tools, options)


def ask_of(body: MessagesBody, service: Service) -> Ask:
    """Translate. Raises Refusal or PromptError naming the member that is wrong."""
    found = understand(body, service)
    tools, choice = found.tools, choice_of(body.tool_choice, found.tools)
    check_choice(choice, tools.rules)
    schema = _schema(body)
    form = constraint_of(tools.rules, choice, None if schema is None else JsonSchemaSpec(schema))
    options = replace(
        _drawing(body, found.options),
        # Nothing is shown of the one token that is drawn where none is asked for.
        max_new=max(body.max_tokens, 1),
        seed=service.seed(None),
        stop=tuple(body.stop_sequences or ()),
        thinking_budget=_budget(body, found.options),
        program=ProgramOptions(constraint=form),
    )
    options, off = without_calls(options, tools.shown, choice, service.text)
    return Ask(
        protocol="messages",
        model=body.model or service.model,
        stream=body.stream,
        options=options,
        conversation=found.conversation,
        calls_off=off,
        max_tokens=body.max_tokens,
        tool_choice=str(choice),
    )


def _check_members(body: CountBody, service: Service) -> None:
    extra = body.model_extra or {}
    for name, advice in REFUSED.items():
        if extra.get(name):
            raise Refusal(
                f"{name} is not supported; {advice}", code="unknown_parameter", param=name
            )
    unknown = set(extra) - HARMLESS - set(REFUSED)
    # Counting takes the whole body of the request whose tokens it counts.
    service.note_unknown(unknown - set(MessagesBody.model_fields))


def _begun(turns: list[Message]) -> tuple[list[Message], str]:
    """The turns before an answer that the client has begun itself, and its text."""
    last = turns[-1]
    text = "".join(part.text for part in last.content)
    if last.role != "assistant" or last.tool_calls or not text:
        return turns, ""
    return turns[:-1], text


def _wishes(body: CountBody, begun: str) -> Thinking:
    given = body.thinking
    if begun and given is not None and given.type == "enabled":
        raise Refusal(
            "messages ends with an assistant message, which leaves no place for the thought; "
            "switch thinking off, or end with a user message",
            code="conflicting_template_option",
            param="thinking",
        )
    enabled = None if given is None else given.type != _OFF
    effort = body.output_config.effort if body.output_config else None
    # The text of the answer has begun, so the thought lies behind.
    if begun:
        return Thinking(enabled=False)
    # An effort is how long to think, if at all.
    return Thinking(enabled=enabled, effort=None if enabled is False else effort)


def _preserves(service: Service) -> bool:
    return service.options.preserve_thinking


def _schema(body: MessagesBody) -> Any:
    nested = body.output_config.format if body.output_config else None
    return one_of(
        output_format=body.output_format.schema_ if body.output_format else None,
        output_config=nested.schema_ if nested else None,
    )


def _drawing(body: MessagesBody, base: GenerationOptions) -> GenerationOptions:
    given: dict[str, Any] = {}
    if body.top_p is not None:
        given["top_p"] = body.top_p
    if body.top_k is not None:
        given["top_k"] = max(body.top_k, 0)
    if body.temperature is not None and not base.greedy:
        given["temperature"] = body.temperature
    return replace(base, **given)


def _budget(body: MessagesBody, options: GenerationOptions) -> int | None:
    """Tokens of thinking; an answer has to fit behind them."""
    given = body.thinking.budget_tokens if body.thinking else None
    budget = options.thinking_budget if given is None else given
    if budget is None or not options.thinking:
        return budget
    return min(budget, max(body.max_tokens - 1, 0))
