"""A Responses body to an Ask."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ninfer.engine import GenerationOptions, normalise
from ninfer.request import ConstraintSpec, ContentPart, Conversation, Message
from ninfer.server import thinking
from ninfer.server.ask import Ask
from ninfer.server.errors import Refusal
from ninfer.server.openai.fields import check_shared, form_of, options_of
from ninfer.server.responses.items import Turns
from ninfer.server.responses.schema import REFUSED, ResponsesBody
from ninfer.server.responses.store import Item, Record
from ninfer.server.responses.tools import Tools, choice_of, tools_of
from ninfer.server.service import Service
from ninfer.server.system_turns import settle_system
from ninfer.server.thinking import Thinking, thinking_of
from ninfer.server.tools import ToolChoice, check_choice, constraint_of, without_calls

LOGPROBS: Final = "message.output_text.logprobs"
_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}


@dataclass(frozen=True, slots=True)
class Understood:
    """A body whose prompt is known: the same for an answer and for counting.

    `items` are those of the input, each with an id; `previous` is the response before them.
    """

    conversation: Conversation
    tools: Tools
    choice: ToolChoice
    options: GenerationOptions
    items: tuple[Item, ...]
    previous: Record | None


def understand(body: ResponsesBody, service: Service, owner: int) -> Understood:
    """Translate what the prompt depends on; `owner` is the key whose responses may be meant.

    Raises Refusal or PromptError naming the member that is wrong.
    """
    service.check_model(body.model)
    _check_members(body, service)
    tools = tools_of(body.tools or [])
    service.note_unknown({f"tools of type {kind}" for kind in tools.hosted})
    choice = choice_of(body.tool_choice, tools, parallel=body.parallel_tool_calls)
    check_choice(choice, tools.rules)
    previous = _previous(body.previous_response_id, service, owner)
    items = _items(body.input, service, owner)
    turns = Turns(lambda kind: service.note_unknown({f"input of type {kind}"}))
    if previous is not None:
        turns.add(previous.items, "previous_response")
    turns.add(items, "input")
    messages = settle_system([*_instructions(body.instructions), *turns.ended()])
    options, template = thinking.apply(
        _wishes(body), service.defaults, service.text, preserve=service.options.preserve_thinking
    )
    conversation = Conversation(normalise(messages), tools.shown, template)
    return Understood(conversation, tools, choice, options, tuple(items), previous)


def ask_of(body: ResponsesBody, found: Understood, service: Service) -> Ask:
    """The rest of it. Raises Refusal naming the member that is wrong."""
    options = options_of(body, service, body.max_output_tokens, found.options)
    form = constraint_of(found.tools.rules, found.choice, _form(body))
    options = replace(
        options,
        logprobs=_logprobs(body),
        program=replace(options.program, constraint=form),
    )
    options, off = without_calls(options, found.tools.shown, found.choice, service.text)
    return Ask(
        protocol="responses",
        model=body.model or service.model,
        stream=body.stream,
        options=options,
        conversation=found.conversation,
        calls_off=off,
        max_tokens=body.max_output_tokens,
        tool_choice=str(found.choice),
    )


def _check_members(body: ResponsesBody, service: Service) -> None:
    check_shared(body, service, REFUSED)
    if body.n != 1:
        raise Refusal(
            "n is not supported; send the request again", code="unsupported_value", param="n"
        )


def _previous(name: str | None, service: Service, owner: int) -> Record | None:
    if name is None:
        return None
    record = service.responses.get(owner, name)
    if record is None:
        raise Refusal(
            f"Previous response with id '{name[:80]}' not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return record


def _items(given: str | Sequence[Any], service: Service, owner: int) -> list[Any]:
    """The items of an input as they are listed later, each with an id and messages in parts.

    What a reference means stands in its place.
    """
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    return [_item(item, f"input[{index}]", service, owner) for index, item in enumerate(given)]


def _item(item: Any, place: str, service: Service, owner: int) -> Any:
    if not isinstance(item, Mapping):
        return item  # refused with its place, later
    kind = item.get("type", "message" if "role" in item else None)
    if kind == "item_reference":
        name = str(item.get("id"))
        found = service.responses.item(owner, name)
        if found is None:
            raise Refusal(
                f"{place}: Item with id '{name[:80]}' not found; send the item itself",
                status=404,
                code="item_not_found",
                param=f"{place}.id",
            )
        return found
    if not isinstance(kind, str):
        return item
    name = item.get("id") or f"{_PREFIXES.get(kind, 'item')}_{uuid.uuid4().hex}"
    listed = {**item, "type": kind, "id": name}
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        text = "output_text" if item.get("role") == "assistant" else "input_text"
        listed["content"] = [{"type": text, "text": content}]
    return listed


def _instructions(text: str | None) -> list[Message]:
    return [] if text is None else [Message("system", (ContentPart("text", text),))]


def _form(body: ResponsesBody) -> ConstraintSpec | None:
    given = body.text.format if body.text else None
    if given is not None and given.get("type") not in ("text", "json_object", "json_schema"):
        raise Refusal(
            f"text.format.type is {str(given.get('type'))[:80]!r}; use text, json_object or "
            "json_schema",
            code="unsupported_value",
            param="text.format",
        )
    return form_of(body, given)


def _logprobs(body: ResponsesBody) -> int | None:
    if body.top_logprobs is None and not body.includes(LOGPROBS):
        return None
    return body.top_logprobs or 0


def _wishes(body: ResponsesBody) -> Thinking:
    """All that the body says on thinking."""
    template = body.chat_template_kwargs
    return thinking_of(
        template.model_dump() if template else {},
        enabled={"enable_thinking": body.enable_thinking},
        effort={"reasoning": body.reasoning.effort if body.reasoning else None},
        preserve={"preserve_thinking": body.preserve_thinking},
        budget={"thinking_budget": body.thinking_budget},
    )
