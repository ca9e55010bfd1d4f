"""A Chat Completions body to an Ask."""

from dataclasses import replace
from typing import Final, cast

from ninfer.engine import parse_conversation
from ninfer.server import thinking
from ninfer.server.ask import Ask
from ninfer.server.errors import Refusal
from ninfer.server.openai.fields import check_shared, form_of, options_of
from ninfer.server.openai.final_message import ended
from ninfer.server.openai.schema import CHAT_REFUSED, ChatBody
from ninfer.server.service import Service
from ninfer.server.thinking import Thinking, thinking_of
from ninfer.server.tools import (
    Mode,
    ToolChoice,
    check_choice,
    check_tools,
    constraint_of,
    without_calls,
    without_hosted,
)

HOSTED: Final = ("web_search", "file_search", "code_interpreter", "image_generation", "mcp")
_SWITCHES: Final = {"enabled": True, "adaptive": True, "auto": None, "disabled": False}


def ask_of(body: ChatBody, service: Service) -> Ask:
    """Translate. Raises Refusal or PromptError naming the member that is wrong."""
    model = service.check_model(body.model)
    check_shared(body, service, CHAT_REFUSED)
    _check_forms(body)
    asked = body.max_completion_tokens or body.max_tokens
    options = options_of(body, service, asked, service.defaults)
    options, template = thinking.apply(
        _wishes(body), options, service.text, preserve=service.options.preserve_thinking
    )
    tools = without_hosted(body.tools or [], HOSTED)
    conversation = ended(
        parse_conversation(body.messages, tools, template),
        body.add_generation_prompt,
        body.continue_final_message,
    )
    check_tools(conversation.tools)
    choice = choice_of(body.tool_choice, parallel=body.parallel_tool_calls)
    check_choice(choice, conversation.tools)
    form = constraint_of(conversation.tools, choice, form_of(body, body.response_format))
    options = replace(options, program=replace(options.program, constraint=form))
    options, off = without_calls(options, conversation.tools, choice, service.text)
    return Ask(
        protocol="chat",
        model=model,
        stream=body.stream,
        options=replace(options, logprobs=_logprobs(body)),
        conversation=conversation,
        count=body.n,
        calls_off=off,
        stop_text_shown=body.include_stop_str_in_output,
        stop_token_shown=not body.skip_special_tokens,
        max_tokens=asked,
        tool_choice=str(choice),
    )


def _check_forms(body: ChatBody) -> None:
    if body.modalities not in (None, ["text"], []):
        raise Refusal(
            "modalities: only text is written here", code="unsupported_value", param="modalities"
        )
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal(
            "top_logprobs needs logprobs: true", code="unsupported_value", param="top_logprobs"
        )


def _logprobs(body: ChatBody) -> int | None:
    return (body.top_logprobs or 0) if body.logprobs else None


def _wishes(body: ChatBody) -> Thinking:
    """All that the body says on thinking."""
    template, reasoning, switch = body.chat_template_kwargs, body.reasoning, body.thinking
    if switch is not None and switch.type not in _SWITCHES:
        raise Refusal(
            f"thinking.type is {switch.type[:80]!r}; use enabled or disabled",
            code="unsupported_value",
            param="thinking.type",
        )
    return thinking_of(
        template.model_dump() if template else {},
        enabled={
            "enable_thinking": body.enable_thinking,
            "thinking": _SWITCHES[switch.type] if switch else None,
            "reasoning": reasoning.enabled if reasoning else None,
        },
        effort={
            "reasoning_effort": body.reasoning_effort,
            "reasoning": reasoning.effort if reasoning else None,
        },
        preserve={"preserve_thinking": body.preserve_thinking},
        budget={
            "thinking_budget": body.thinking_budget,
            "thinking_token_budget": body.thinking_token_budget,
            "reasoning": reasoning.max_tokens if reasoning else None,
            "thinking": switch.budget_tokens if switch else None,
        },
    )


def choice_of(given: object, *, parallel: bool) -> ToolChoice:
    """What `tool_choice` says. Raises Refusal for anything that is none."""
    if given is None:
        return ToolChoice(parallel=parallel)
    if isinstance(given, str) and given in ("auto", "none", "required"):
        return ToolChoice(cast("Mode", given), parallel=parallel)
    if isinstance(given, dict):
        if given.get("type") == "allowed_tools":
            allowed = given.get("allowed_tools", given)
            names = [_name(tool) for tool in allowed.get("tools") or []]
            mode: Mode = "required" if allowed.get("mode") == "required" else "auto"
            return ToolChoice(mode, tuple(names), parallel)
        if given.get("type", "function") == "function":
            return ToolChoice("required", (_name(given),), parallel=False)
    raise Refusal(
        f"tool_choice is {str(given)[:80]!r}; use auto, none, required or name a function",
        code="unsupported_value",
        param="tool_choice",
    )


def _name(tool: object) -> str:
    nested = tool.get("function", tool) if isinstance(tool, dict) else None
    name = nested.get("name") if isinstance(nested, dict) else None
    if not isinstance(name, str):
        raise Refusal(
            "tool_choice names no function", code="unsupported_value", param="tool_choice"
        )
    return name
