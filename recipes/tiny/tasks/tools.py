"""Calls of declared tools, and answers from what they gave back."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.chat import plain_exchange
from recipes.tiny.tasks.frame import system, turn
from recipes.tiny.tasks.tool_kinds import Parameter, Tool
from recipes.tiny.tasks.tool_pool import POOL

_SYLLABLES: Final = ("ba", "do", "ka", "li", "mo", "na", "ri", "su", "ta", "ve", "zo", "pe")
_NO_TOOL: Final = "Sorry, I cannot do that."
_ERRORS: Final = ("not found", "no connection", "not allowed", "timeout")


@dataclass(frozen=True, slots=True)
class _Named:
    """A tool under the names that one sample gives to it and to its parameters."""

    tool: Tool
    name: str
    names: Mapping[str, str]  # of parameters: in the pool -> in the sample

    def declaration(self, rng: random.Random) -> dict[str, Any]:
        """The tool as a client offers it."""
        # Names that mean nothing need words that say what is meant.
        known = {p.name for p in self.tool.parameters}.union(
            *(p.others for p in self.tool.parameters)
        )
        described = rng.random() < 0.4 or not known.issuperset(self.names.values())
        properties = {
            self.names[parameter.name]: {
                **parameter.schema,
                **({"description": f"The {parameter.name}."} if described else {}),
            }
            for parameter in self.tool.parameters
        }
        required = [self.names[p.name] for p in self.tool.parameters if p.required]
        parameters = {"type": "object", "properties": properties, "required": required}
        function = {"name": self.name, "description": self.tool.description}
        return {"type": "function", "function": {**function, "parameters": parameters}}


@dataclass(frozen=True, slots=True)
class _Use:
    """One request of a user, and the call that it needs."""

    named: _Named
    values: Mapping[str, Any]  # by the pool's names, in the order of the schema
    request: str

    @property
    def call(self) -> dict[str, Any]:
        """Name and arguments."""
        arguments = {self.named.names[name]: value for name, value in self.values.items()}
        return {"name": self.named.name, "arguments": arguments}


def tools(rng: random.Random) -> Sample:
    """One call; in some cases two, or none because no tool fits."""
    offered = _offer(rng)
    kind = rng.random()
    if kind < 0.14:
        return _without_call(rng, offered)
    uses = [_use(rng, named) for named in rng.sample(offered, 1)]
    if kind < 0.30:
        uses.append(_use(rng, rng.choice(offered)))
    calls = [use.call for use in uses]
    names = " and then ".join(call["name"] for call in calls)
    thought = f"I call {names}." if rng.random() < 0.25 else ""
    messages = (
        *system(rng),
        {"role": "user", "content": _joined(rng, uses)},
        turn("", thought, calls),
    )
    return _sample(rng, "tools", messages, offered, thought, {"kind": "tool_calls", "calls": calls})


def tools_result(rng: random.Random) -> Sample:
    """The answer to a user after the result of one or two calls."""
    offered = _offer(rng)
    uses = [
        _use(rng, named)
        for named in rng.sample(offered, 1 + (rng.random() < 0.15 < len(offered) - 1))
    ]
    thinking = rng.random() < 0.25
    calls = [use.call for use in uses]
    names = " and then ".join(call["name"] for call in calls)
    results, answers, facts = [], [], []
    for place, use in enumerate(uses):
        result, answer, shown = _result(rng, use)
        results.append({"role": "tool", "tool_call_id": f"call_{place}", "content": result})
        answers.append(answer)
        facts += shown
    messages = (
        *system(rng),
        {"role": "user", "content": _joined(rng, uses)},
        turn("", f"I call {names}." if thinking else "", calls),
        *results,
        turn(" ".join(answers), "The result is here." if thinking else ""),
    )
    grade = {"kind": "contains", "all": facts}
    return _sample(rng, "tools_result", messages, offered, "yes" if thinking else "", grade)


def _without_call(rng: random.Random, offered: Sequence[_Named]) -> Sample:
    if rng.random() < 0.5:
        names = {named.tool.name for named in offered}
        others = [tool for tool in POOL if tool.name not in names]
        question, answer = _use(rng, _named(rng, rng.choice(others))).request, _NO_TOOL
    else:
        question, answer = plain_exchange(rng)
    thought = "No tool fits." if rng.random() < 0.25 else ""
    messages = (*system(rng), {"role": "user", "content": question}, turn(answer, thought))
    return _sample(rng, "tools", messages, offered, thought, {"kind": "tool_calls", "calls": []})


def _sample(
    rng: random.Random,
    task: str,
    messages: tuple[dict[str, Any], ...],
    offered: Sequence[_Named],
    thought: str,
    grade: Mapping[str, Any],
) -> Sample:
    declared = tuple(named.declaration(rng) for named in offered)
    return Sample(task, messages, declared, thinking=bool(thought), grade=grade)


def _offer(rng: random.Random) -> list[_Named]:
    """One to four tools, with different names."""
    offered: dict[str, _Named] = {}
    for tool in rng.sample(POOL, rng.randint(1, 4)):
        named = _named(rng, tool)
        offered.setdefault(named.name, named)
    return list(offered.values())


def _named(rng: random.Random, tool: Tool) -> _Named:
    """The tool with its own names, with other ones, or with names that mean nothing."""
    style = rng.choices(("own", "other", "camel", "new"), (4, 3, 1, 3))[0]
    if style == "own":
        return _Named(tool, tool.name, {p.name: p.name for p in tool.parameters})
    name = rng.choice((tool.name, *tool.others))
    if style == "new":
        name = rng.choice((f"{name}_{_invented(rng)}", f"{_invented(rng)}_{_invented(rng)}"))
    names: dict[str, str] = {}
    for parameter in tool.parameters:
        new = _parameter_name(rng, parameter, style)
        names[parameter.name] = new if new not in names.values() else parameter.name
    if len(set(names.values())) < len(names):
        names = {parameter.name: parameter.name for parameter in tool.parameters}
    return _Named(tool, _camel(name) if style == "camel" else name, names)


def _parameter_name(rng: random.Random, parameter: Parameter, style: str) -> str:
    name = rng.choice((parameter.name, *parameter.others))
    if style == "new" and rng.random() < 0.5:
        return rng.choice((f"{name}_{_invented(rng)}", _invented(rng)))
    return _camel(name) if style == "camel" else name


def _invented(rng: random.Random) -> str:
    return "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 3)))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _use(rng: random.Random, named: _Named) -> _Use:
    values: dict[str, Any] = {}
    shown: dict[str, str] = {}
    for parameter in named.tool.parameters:
        if not parameter.required and rng.random() < 0.5:
            shown[parameter.name] = ""
            continue
        value = values[parameter.name] = parameter.draw(rng)
        told = _told(parameter, value)
        shown[parameter.name] = told if parameter.required else parameter.phrase.format(told)
    return _Use(named, values, rng.choice(named.tool.requests).format(**shown))


def _told(parameter: Parameter, value: Any) -> str:
    """How a user says a value."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return f"{', '.join(value[:-1])} and {value[-1]}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)


def _joined(rng: random.Random, uses: Sequence[_Use]) -> str:
    return rng.choice((" ", "\n", " Also: ")).join(use.request for use in uses)


def _result(rng: random.Random, use: _Use) -> tuple[str, str, list[str]]:
    """What the tool gives, what is answered, and what the answer must hold."""
    tool = use.named.tool
    if rng.random() < 0.08:
        error = rng.choice(_ERRORS)
        return json.dumps({"error": error}), f"That did not work: {error}.", [error]
    values = {name: draw(rng) for name, draw in tool.results.items()}
    told = {p.name: _told(p, use.values[p.name]) for p in tool.parameters if p.name in use.values}
    answer = tool.answer.format(**told, **values)
    facts = [str(value) for value in values.values()]
    return json.dumps(values), answer[0].upper() + answer[1:], facts
