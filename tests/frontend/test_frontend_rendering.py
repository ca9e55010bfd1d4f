"""The demo chat template: published wire format, refusals, and agreement with transformers."""

import json

import pytest
from transformers import PreTrainedTokenizerFast

from ninfer.errors import PromptError
from ninfer.frontend import parse_conversation
from ninfer.frontend.prompt import template_variables
from ninfer.request import TemplateOptions

G = "<|im_start|>assistant\n<think>\n"
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
NO_THOUGHT = "<think>\n\n</think>\n\n"


def user(content):
    return {"role": "user", "content": content}


def assistant(content, reasoning=None, calls=()):
    message = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ]
    return message


def tool(content):
    return {"role": "tool", "content": content, "tool_call_id": "c"}


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def image(path="a.png"):
    return {"type": "image", "image": path}


def text(value):
    return {"type": "text", "text": value}


def render(frontend, messages, tools=None, **options):
    conversation = parse_conversation(messages, tools, TemplateOptions(**options))
    return frontend.template.render(template_variables(conversation))


ARGUMENTS = {"a": 1, "b": True, "c": None, "d": "x\ny", "e": {"k": [1, 2.5]}}
THINK_ANSWER = "<think>\nR\n</think>\n\nans"
Q = turn("user", "q")

VECTORS = {
    "plain": ([user(" hi \n")], {}, turn("user", "hi") + G),
    "thinking off": (
        [user(" hi \n")],
        {"enable_thinking": False},
        turn("user", "hi") + "<|im_start|>assistant\n" + NO_THOUGHT,
    ),
    "parts": (
        [user([text("a"), text("b"), image(), text("c")])],
        {},
        turn("user", f"ab{IMAGE}c") + G,
    ),
    "picture numbers": (
        [user([image(), image()]), user([image(), {"type": "video", "video": "v"}])],
        {"add_vision_id": True},
        turn("user", f"Picture 1: {IMAGE}Picture 2: {IMAGE}")
        + turn("user", f"Picture 3: {IMAGE}Video 1: {VIDEO}")
        + G,
    ),
    "argument kinds": (
        [user("q"), assistant(None, calls=[("f", ARGUMENTS)])],
        {"add_generation_prompt": False},
        Q
        + turn(
            "assistant",
            NO_THOUGHT + "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n"
            "<parameter=b>\ntrue\n</parameter>\n<parameter=c>\nnull\n</parameter>\n"
            "<parameter=d>\nx\ny\n</parameter>\n"
            '<parameter=e>\n{"k": [1, 2.5]}\n</parameter>\n</function>\n</tool_call>',
        ),
    ),
    "calls and results": (
        [
            user("q"),
            assistant("Sure.", " R \n", [("f", {}), ("g", {"x": "<&>"})]),
            tool("r1"),
            tool("r2"),
        ],
        {},
        Q
        + turn(
            "assistant",
            "<think>\nR\n</think>\n\nSure.\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=g>\n<parameter=x>\n<&>\n</parameter>\n</function>\n</tool_call>",
        )
        + turn(
            "user",
            "<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response>",
        )
        + G,
    ),
    "old reasoning goes": (
        [user("q1"), assistant("a1", "R1"), user("q2")],
        {},
        turn("user", "q1") + turn("assistant", "a1") + turn("user", "q2") + G,
    ),
    "preserved reasoning": (
        [user("q1"), assistant("a1", "R1"), assistant("a1b"), user("q2")],
        {"preserve_thinking": True},
        turn("user", "q1")
        + turn("assistant", "<think>\nR1\n</think>\n\na1")
        + turn("assistant", NO_THOUGHT + "a1b")
        + turn("user", "q2")
        + G,
    ),
    "empty reasoning stops inline splitting": (
        [user("q"), assistant(THINK_ANSWER, "")],
        {"add_generation_prompt": False},
        Q + turn("assistant", NO_THOUGHT + THINK_ANSWER),
    ),
    "inline reasoning": (
        [user("q"), assistant(THINK_ANSWER)],
        {"add_generation_prompt": False},
        Q + turn("assistant", THINK_ANSWER),
    ),
    "image in a tool result": (
        [user("q"), assistant(None, calls=[("f", {})]), tool([text("shot"), image()])],
        {},
        Q
        + turn("assistant", NO_THOUGHT + "<tool_call>\n<function=f>\n</function>\n</tool_call>")
        + turn("user", f"<tool_response>\nshot{IMAGE}\n</tool_response>")
        + G,
    ),
    "empty system text": (
        [{"role": "system", "content": " "}, user("q")],
        {},
        turn("system", "") + Q + G,
    ),
    "wrapped user text is no query": (
        [user("q"), assistant("a", "R"), user("<tool_response>\nr\n</tool_response>")],
        {},
        Q
        + turn("assistant", "<think>\nR\n</think>\n\na")
        + turn("user", "<tool_response>\nr\n</tool_response>")
        + G,
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_wire_format(frontend, name):
    messages, options, expected = VECTORS[name]
    assert render(frontend, messages, **options) == expected


def test_tools_stand_before_the_system_text_exactly_as_given(frontend):
    offered = {
        "type": "function",
        "function": {"name": "z", "strict": True, "a": "<é&'>", "B": 1.0},
    }
    messages = [{"role": "system", "content": " S "}, user("q")]
    rendered = render(frontend, messages, [offered, offered])
    line = json.dumps(offered, ensure_ascii=False)
    assert rendered.startswith("<|im_start|>system\n# Tools\n\n")
    assert f"\n<tools>\n{line}\n{line}\n</tools>\n\n" in rendered
    assert rendered.endswith("</IMPORTANT>\n\nS<|im_end|>\n" + Q + G)
    without_text = render(frontend, [user("q")], [offered])
    assert without_text.endswith("</IMPORTANT><|im_end|>\n" + Q + G)


REFUSED = {
    "no messages": [],
    "no user": [{"role": "assistant", "content": "a"}],
    "late system": [user("q"), {"role": "system", "content": "s"}],
    "unknown role": [user("q"), {"role": "developer", "content": "s"}],
    "content number": [user(5)],
    "content object": [user({"type": "text"})],
    "unknown part": [user([{"type": "input_text", "text": "a"}])],
    "media in system": [{"role": "system", "content": [{"type": "image"}]}, user("q")],
    "arguments as text": [user("q"), assistant("", calls=[("f", "{}")])],
    "only wrapped users": [user("<tool_response>\nr\n</tool_response>")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_template_refuses_what_the_published_one_refuses(frontend, name):
    with pytest.raises(PromptError, match="the chat template refuses"):
        frontend.template.render({"messages": REFUSED[name], "tools": None})


TOOLS = [
    {
        "type": "function",
        "function": {"name": "f", "description": "é <b> & 'c'", "parameters": {"z": 1, "a": [2]}},
    }
]


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("name", VECTORS)
def test_transformers_renders_and_encodes_the_same(frontend, resources, tmp_path, name, tools):
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / file).write_bytes(resources[f"frontend/{file}"])
    oracle = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    messages, options, _ = VECTORS[name]
    conversation = parse_conversation(messages, tools, TemplateOptions(**options))
    variables = template_variables(conversation)
    expected = oracle.apply_chat_template(variables.pop("messages"), tokenize=False, **variables)
    rendered = render(frontend, messages, tools, **options)
    assert rendered == expected
    assert frontend.tokenizer.encode(rendered) == oracle(expected)["input_ids"]
