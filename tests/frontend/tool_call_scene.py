"""Outputs with tool calls, cut in many ways, and what a client is left with."""

import json
import random
from dataclasses import dataclass
from itertools import pairwise

from ninfer.frontend.tool_calls import new_tool_call_parser
from ninfer.request import TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart


def tool(name, properties=None, **schema):
    parameters = {"type": "object", "properties": properties or {}, **schema}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


W = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "opts": {"type": "object"},
    "tags": {"type": "array"},
    "on": {"type": "boolean"},
    "note": {"type": ["string", "null"]},
    "any": {},
}
TOOLS = (tool("w", W), tool("数据.get-all v2", {"a": {"type": "string"}}))


@dataclass
class Outcome:
    """What came out: channels joined, calls complete or begun, in the order of their indices."""

    content: str = ""
    reasoning: str = ""
    calls: tuple = ()
    begun: tuple = ()  # (name, joined fragments) of all calls, complete or not


def read(events):
    """Joins events; checks what must hold for every stream of them."""
    outcome = Outcome()
    ids, begun, calls = [], [], []
    for event in events:
        if isinstance(event, TextDelta):
            assert event.text
            setattr(outcome, event.channel, getattr(outcome, event.channel) + event.text)
        elif isinstance(event, ToolCallStart):
            assert event.index == len(begun) == len(calls)
            assert event.name and event.name == event.name.strip()
            assert event.id.startswith("call_") and len(event.id) == 29
            ids.append(event.id)
            begun.append([event.name, ""])
        elif isinstance(event, ToolCallArguments):
            assert event.index == len(begun) - 1 == len(calls) and event.fragment
            begun[-1][1] += event.fragment
        else:
            assert isinstance(event, ToolCallEnd)
            assert event.index == len(begun) - 1 == len(calls)
            name, text = begun[-1]
            assert (event.call.name, event.call.id) == (name, ids[-1])
            assert same(json.loads(text, object_pairs_hook=members), event.call.arguments)
            calls.append((name, dict(event.call.arguments)))
    assert len(set(ids)) == len(ids)
    for _, text in begun[len(calls) :]:
        assert not is_json(text)
    outcome.calls, outcome.begun = tuple(calls), tuple(map(tuple, begun))
    return outcome


def members(pairs):
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def same(a, b):
    """Equal with types and key order, which == does not see."""
    return repr(a) == repr(b)


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def parse(pieces, tools=TOOLS, cut=False):
    parser = new_tool_call_parser(tools)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return read(events + parser.finish(cut=cut))


def split(text, size):
    return [text[i : i + size] for i in range(0, len(text), size)]


def pieces_of(text, seed=0):
    """The text in one piece, in characters, in small pieces and in random ones."""
    rng = random.Random(f"{seed} {text}")
    yield [text]
    for size in (1, 2, 3, 7):
        yield split(text, size)
    for count in (1, 2, 4, 8):
        places = sorted(rng.choices(range(len(text) + 1), k=count))
        yield [text[a:b] for a, b in pairwise([0, *places, len(text)])]


def outcome_of(text, tools=TOOLS, cut=False):
    """The outcome in one piece, after checking that no other cutting gives another."""
    first, *others = (parse(pieces, tools, cut) for pieces in pieces_of(text))
    for other in others:
        assert other == first and same(other.calls, first.calls)
    return first


def call(*parameters, name="w"):
    """A call as templates write it."""
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def w(**arguments):
    return ("w", arguments)
