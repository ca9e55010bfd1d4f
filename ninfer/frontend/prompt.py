"""A conversation to a prepared prompt: template variables, rendering, token ids."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from ninfer.errors import PromptError
from ninfer.frontend.chat_template import ChatTemplate
from ninfer.frontend.exact_turns import EncodedPrompt, encode_exactly
from ninfer.frontend.placeholders import PADS, expand_placeholders, find_runs
from ninfer.frontend.reasoning import CLOSE_TAG, starts_in_reasoning
from ninfer.frontend.tokenizer import Tokenizer
from ninfer.request import ContentPart, Conversation, Media, Message, PreparedPrompt, Recall

# What a special token's text becomes when a message or tool holds it: "text" encodes it as the
# characters that it shows; "control" makes it the token, as published chat stacks do by default.
LiteralControlText = Literal["text", "control"]

# Private-use characters: no text that means anything to others holds all of them.
_MARKS: Final = range(0xF0000, 0xFFFFE)


def prepare_prompt(
    conversation: Conversation,
    template: ChatTemplate,
    tokenizer: Tokenizer,
    literal_control_text: LiteralControlText = "text",
    media: Sequence[Media] = (),
    merge: int = 1,
    recall: Recall | None = None,
) -> PreparedPrompt:
    """Render and encode; `media` are those of the conversation, in order.

    `recall` gives turns the ids that the model wrote (see `encode_exactly`).

    Only special tokens are kept from being spelled by clients. Tags of thoughts and tools are left
    alone in text, because templates read them there. For prompts in which no message or tool
    holds the beginning of a special token (`<|`), both settings give the same ids. Raises
    PromptError.
    """
    try:
        variables, mark = _marked(conversation, tokenizer, literal_control_text)
    except RecursionError:
        raise PromptError("tools or tool arguments are nested too deeply") from None
    thought, begun = variables.pop("begun_thought"), variables.pop("begun")
    rendered = template.render(variables)
    if media:
        rendered = expand_placeholders(rendered, media, merge)
    rendered += _beginning(rendered, thought, begun)
    if recall is None or literal_control_text == "control":
        ids = tokenizer.encode(rendered, mark=mark)
        encoded = EncodedPrompt(ids, rendered.replace(mark, "") if mark else rendered)
    else:
        encoded = encode_exactly(rendered, mark, tokenizer, conversation, media, recall)
    pad_ids = {kind: tokenizer.special[pad] for kind, pad in PADS.items()} if media else {}
    return PreparedPrompt(
        text=encoded.text,
        token_ids=tuple(encoded.ids),
        starts_in_reasoning=starts_in_reasoning(rendered),
        media=tuple(media),
        runs=find_runs(encoded.ids, pad_ids, media, merge),
        tools=conversation.tools,
        turn_key=encoded.turn_key,
    )


def _beginning(rendered: str, thought: str, text: str) -> str:
    """What a client wrote of the answer, as the template would write it in a turn."""
    if starts_in_reasoning(rendered) and text:
        return f"{thought.strip()}\n{CLOSE_TAG}\n\n{text}"
    if thought.strip() and not starts_in_reasoning(rendered):
        raise PromptError(
            "the last message has reasoning_content, and the prompt opens no thought; switch "
            "thinking on, or leave it out"
        )
    return thought or text


def _marked(
    conversation: Conversation, tokenizer: Tokenizer, literal_control_text: LiteralControlText
) -> tuple[dict[str, Any], str]:
    """Template variables with the answer's beginning, and the mark that breaks control text in
    them; "" if none is needed."""
    written = {"begun_thought": conversation.begun_thought, "begun": conversation.begun}
    variables = {**template_variables(conversation), **written}
    if literal_control_text == "control" or not _holds_control(variables, tokenizer):
        return variables, ""
    mark = _unused_character(variables)
    return {name: _broken(value, tokenizer, mark) for name, value in variables.items()}, mark


def template_variables(conversation: Conversation) -> dict[str, Any]:
    """What the chat template sees. Options that were not given are left out."""
    options = conversation.template
    variables: dict[str, Any] = {
        "messages": [_message(message) for message in conversation.messages],
        "tools": [_plain(tool) for tool in conversation.tools] or None,
        "add_generation_prompt": options.add_generation_prompt,
        "enable_thinking": options.enable_thinking,
        "add_vision_id": options.add_vision_id,
    }
    if options.preserve_thinking is not None:
        variables["preserve_thinking"] = options.preserve_thinking
    if options.reasoning_effort is not None:
        variables["reasoning_effort"] = options.reasoning_effort
    return variables


def _message(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": _content(message.content)}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {"name": call.name, "arguments": _plain(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def _content(parts: tuple[ContentPart, ...]) -> str | list[dict[str, str]]:
    """Text alone as a string; otherwise parts, neighbouring texts joined as they would render."""
    items: list[dict[str, str]] = []
    for part in parts:
        if part.kind != "text":
            items.append({"type": part.kind})
        elif items and items[-1]["type"] == "text":
            items[-1]["text"] += part.text
        else:
            items.append({"type": "text", "text": part.text})
    if not items:
        return ""
    return items[0]["text"] if len(items) == 1 and items[0]["type"] == "text" else items


def _plain(value: Any) -> Any:
    """JSON-like values in the plain containers that the sandbox measures."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _holds_control(variables: dict[str, Any], tokenizer: Tokenizer) -> bool:
    return any(tokenizer.breaks(text, "-") != text for text in _strings(variables))


def _unused_character(variables: dict[str, Any]) -> str:
    used = {letter for text in _strings(variables) for letter in text if ord(letter) >= _MARKS[0]}
    for code in _MARKS:
        if chr(code) not in used:
            return chr(code)
    raise PromptError("the messages use every private character; remove some")


def _broken(value: Any, tokenizer: Tokenizer, mark: str) -> Any:
    """`value` with every would-be special token in its strings broken by `mark`."""
    if isinstance(value, str):
        return tokenizer.breaks(value, mark)
    if isinstance(value, dict):
        return {
            _broken(key, tokenizer, mark): _broken(item, tokenizer, mark)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_broken(item, tokenizer, mark) for item in value]
    return value
