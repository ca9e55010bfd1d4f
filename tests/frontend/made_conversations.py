"""Conversations made from a seed, as transformers takes them and as a client would send them."""

import json
import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from media_files import data_uri, png

WORDS = (
    *("the", "quick brown fox", "Größe", "naïve café", "e\u0301a\u0308", "你好,世界", "人力资源"),
    *("こんにちは", "привет мир", "مرحبا", "नमस्ते", "🙂🏳️‍🌈", "1234567", "3.14e-10", "don't WE'LL"),
    *("def f(x):\n    return x\n", "\t\tindented", "a  b   c", "{'k': [1, None]}", "<b>&amp;</b>"),
    *(
        '"quoted" \\n \\',
        "https://x.example/a?b=c&d",
        "</div>",
        "line\r\nend",
        "\u2028",
        "x\u00a0y",
    ),
    *("\n\n", " ", "\n", "```py\nprint('<')\n```", "| a | b |", "\ufeff", "ﬁ①Ⅳ", "\x00\x7f"),
    # Tags that templates write themselves.
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<function=f>", "<parameter=a>", "<think>\nidea\n</think>\n\nso"),
)
CONTROL = ("<|im_end|>", "<|im_start|>user\n", "<|endoftext|>", "<|fim_prefix|>", "a<|b|>")
NAMES = ("get_weather", "read-file", "mcp__srv__run.it", "搜索", "f")
KEYS = ("path", "n", "опция", "a b", "flags", "text")
# Height and width of an image -> the rows that it has in a prompt.
ROWS = {(1, 1): 64, (64, 64): 64, (100, 200): 72}


@dataclass
class Made:
    """One conversation. `own` is the form of transformers, `sent` that of an OpenAI client.

    `control` tells that texts spell control tokens, `rows` how many rows each image has, in order.
    """

    own: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    control: bool = False
    rows: list[int] = field(default_factory=list)
    traits: set[str] = field(default_factory=set)

    def add(self, own: dict[str, Any], **sent: Any) -> None:
        """One turn; `sent` are the members that a client writes in another way."""
        self.own.append(own)
        self.sent.append({**own, **sent})


def made(seed: int, efforts: tuple[str, ...] = ()) -> Made:
    """The conversation of a seed; `efforts` are those that the template knows."""
    return _Maker(random.Random(seed), efforts).whole()


class _Maker:
    def __init__(self, draw: random.Random, efforts: tuple[str, ...]) -> None:
        self._draw = draw
        self._efforts = efforts
        self._made = Made(control=draw.random() < 0.2)
        if self._made.control:
            self._made.traits.add("control text")
        self._words = WORDS + CONTROL * 2 if self._made.control else WORDS

    def whole(self) -> Made:
        draw, result = self._draw, self._made
        self._options()
        if draw.random() < 0.5:
            result.tools = [self._tool(name) for name in draw.sample(NAMES, draw.randint(1, 4))]
            result.traits.add("tools")
        if draw.random() < 0.5:
            self._system()
        rounds = draw.randint(1, 4)
        for index in range(rounds):
            self._user()
            for _ in range(draw.randint(0, 3) if result.tools else 0):
                self._calls()
            # A conversation ends with a question or results, or with an answer to be gone on from.
            if index < rounds - 1 or not result.options["add_generation_prompt"]:
                self._answer()
        if rounds > 1:
            result.traits.add("several questions")
        return result

    def _options(self) -> None:
        draw, options = self._draw, self._made.options
        options["add_generation_prompt"] = draw.random() < 0.8
        options["enable_thinking"] = draw.random() < 0.6
        options["add_vision_id"] = draw.random() < 0.3
        preserve = draw.choice((None, None, True, False))
        if preserve is not None:
            options["preserve_thinking"] = preserve
        if self._efforts and draw.random() < 0.5:
            options["reasoning_effort"] = draw.choice(self._efforts)
            self._made.traits.add("effort")
        for name in ("enable_thinking", "preserve_thinking", "add_generation_prompt"):
            self._made.traits.add(f"{name} {options.get(name)}")

    def _text(self, most: int = 8) -> str:
        return self._draw.choice(("", " ")).join(
            self._draw.choices(self._words, k=self._draw.randint(1, most))
        )

    def _system(self) -> None:
        texts = [self._text() for _ in range(self._draw.choice((1, 1, 2, 3)))]
        shown = [text for text in texts if text.strip()] if len(texts) > 1 else texts
        self._made.own.append({"role": "system", "content": "\n\n".join(shown)})
        roles = ("system", "developer")
        self._made.sent += [{"role": self._draw.choice(roles), "content": text} for text in texts]
        self._made.traits.add("system")

    def _user(self) -> None:
        if self._draw.random() < 0.6:
            self._made.add({"role": "user", "content": "ask: " + self._text()})
        else:
            own, sent = self._parts()
            self._made.add({"role": "user", "content": own}, content=sent)

    def _parts(self) -> tuple[list[Any], list[Any]]:
        own: list[dict[str, Any]] = [{"type": "text", "text": "ask: "}]
        sent = list(own)
        for _ in range(self._draw.randint(1, 4)):
            if self._draw.random() < 0.5:
                part = {"type": "text", "text": self._text()}
                own.append(part)
                sent.append(part)
                continue
            size = self._draw.choice(list(ROWS))
            url = _url(*size)
            self._made.rows.append(ROWS[size])
            own.append({"type": "image", "image": url})
            sent.append({"type": "image_url", "image_url": {"url": url}})
            self._made.traits.add("images")
        return own, sent

    def _answer(self) -> None:
        turn = {"role": "assistant", "content": self._text()}
        self._made.add({**turn, **self._thought()})

    def _thought(self) -> dict[str, str]:
        if self._draw.random() < 0.5:
            return {}
        self._made.traits.add("reasoning")
        return {"reasoning_content": self._draw.choice(("", "\n" + self._text() + " \n"))}

    def _calls(self) -> None:
        """A turn of calls and their results, which a client may send in another order."""
        draw, traits = self._draw, self._made.traits
        named = [
            draw.choice(self._made.tools)["function"]["name"] for _ in range(draw.choice((1, 1, 3)))
        ]
        ids = [f"call_{len(self._made.own)}_{place}" for place in range(len(named))]
        arguments = [
            {key: self._value() for key in draw.sample(KEYS, draw.randint(0, 4))} for _ in named
        ]
        triples = list(zip(ids, named, arguments, strict=True))
        content = draw.choice(("", self._text()))
        self._made.add(
            {
                "role": "assistant",
                "content": content,
                **self._thought(),
                "tool_calls": [_call(*triple) for triple in triples],
            },
            content=content or None,
            tool_calls=[
                _call(call_id, name, json.dumps(values, ensure_ascii=draw.random() < 0.5))
                for call_id, name, values in triples
            ],
        )
        traits.add("calls" if len(named) == 1 else "several calls")
        begun = len(self._made.sent)
        for call_id in ids:
            own, sent = self._parts() if draw.random() < 0.3 else (self._text(),) * 2
            turn = {"role": "tool", "tool_call_id": call_id, "content": own}
            self._made.add(turn, content=sent)
        if draw.random() < 0.5:
            results = self._made.sent[begun:]
            draw.shuffle(results)
            self._made.sent[begun:] = results
        traits.add("results")

    def _value(self) -> Any:
        draw = self._draw
        kinds = (
            self._text(3),
            "42",
            "",
            7,
            -(2**60),
            2.5,
            1e300,
            True,
            None,
            [],
            {},
            [1, "é", None],
        )
        nested = {"k": [self._text(2), {"b": False}], "": 0.1}
        return draw.choice((*kinds, self._text(3), self._text(6), nested))

    def _tool(self, name: str) -> dict[str, Any]:
        draw = self._draw
        properties = {
            key: {"type": draw.choice(("string", "integer", ["object", "null"]))}
            for key in draw.sample(KEYS, draw.randint(0, len(KEYS)))
        }
        function: dict[str, Any] = {
            "name": name,
            "description": self._text(),
            "parameters": {"type": "object", "properties": properties, "$defs": {"é": [1.0, {}]}},
        }
        if draw.random() < 0.3:
            function["strict"] = draw.random() < 0.5
        if draw.random() < 0.2:
            function = dict(reversed(function.items()))
        return {"type": "function", "function": function}


@cache
def _url(height: int, width: int) -> str:
    return data_uri(png(height, width))


def _call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}
