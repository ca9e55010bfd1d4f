"""The grammar of tool calls in the XML form of the Qwen chat templates.

A call is `<tool_call>`, a function tag with the tool's name, parameter tags in any order, and their
closers, each on a line. Strings stand raw up to their closer; other values are JSON.
"""

import re
from collections.abc import Iterator
from typing import Final

from ninfer.errors import ConstraintError
from ninfer.frontend.grammar.json_schema import json_text, literal
from ninfer.frontend.grammar.tool_values import Lengths, ToolSchema, value_forms
from ninfer.request import ToolCallSpec

_NAME: Final = re.compile(r"[^\s<>]{1,128}")
_RULES: Final = r"""
calls: call (SPACE call)*
call: "<tool_call>" body
body: "\n<function=" tool "</function>\n</tool_call>"
SPACE: /[ \n]{1,4}/
"""


def call_rules(spec: ToolCallSpec) -> str:
    """Lark rules of which `answer` is the whole answer.

    Raises ConstraintError for tools that cannot be told apart or whose schema cannot be enforced.
    """
    if not spec.tools:
        raise ConstraintError("there is no tool to call", code="invalid_grammar")
    names = [tool.name for tool in spec.tools]
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            raise ConstraintError(
                f"tool name {name!r} is given twice or holds white space, '<' or '>'",
                code="invalid_grammar",
            )
    calls = "calls" if spec.parallel else "call"
    rules = [_RULES]
    if spec.required:
        rules.append(f"answer: {calls}")
    elif spec.answer is not None:
        schema = getattr(spec.answer, "schema", {"type": "object"})
        rules.append(f"answer: {calls} | other")
        rules.append(f"other: %json {json_text(schema, 'the answer schema')}")
    else:
        rules.append(_calls_in_text(names, spec.parallel))
    rules.append("tool: " + " | ".join(f"tool_{number}" for number in range(len(names))))
    lengths: set[Lengths] = set()
    for number, tool in enumerate(spec.tools):
        rules += _tool(number, ToolSchema.of(tool, lengths))
    rules += [bounds.rule for bounds in sorted(lengths)]
    return "\n".join(rules) + "\n"


def _calls_in_text(names: list[str], parallel: bool) -> str:
    """Free text with calls in it; a call of a known tool begins in no other way."""
    tags = " | ".join(literal(f"<function={name}>") for name in names)
    times = "*" if parallel else "?"
    return (
        f"answer: in_text{times} FREE\n"
        "in_text: opening body\n"
        'opening[lazy]: FREE "<tool_call>"\n'
        f'FREE: /(?s:.*)/ & ~(/(?s:.*)/ ("<tool_call>" | {tags}) /(?s:.*)/)'
    )


def _tool(number: int, schema: ToolSchema) -> Iterator[str]:
    opening = literal(schema.tool.name + ">\n")
    rule = f"parameters_{number}"
    if schema.others is not None:
        yield from _other_parameters(number, schema)
    if not schema.keys:
        yield f"tool_{number}: {opening}" + ("" if schema.others is None else f" other_{number}*")
        return
    yield f"tool_{number}: {opening} {rule}::0x0"
    # Required keys have the lowest bits.
    needed = len(schema.required)
    yield f'{rule}::_ : ""' + (f" %if is_ones([0:{needed}])" if needed else "")
    for bit, key in enumerate(schema.keys):
        value = " | ".join(value_forms(schema, schema.properties.get(key, {}), key))
        tag = literal(f"<parameter={key}>\n")
        yield f"  | {tag} ({value}) {rule}::set_bit({bit}) %if bit_clear({bit})"
    if schema.others is not None:
        yield f"  | other_{number} {rule}::_"


def _other_parameters(number: int, schema: ToolSchema) -> Iterator[str]:
    value = " | ".join(value_forms(schema, schema.others, "additionalProperties"))
    known = " | ".join(map(literal, schema.keys))
    yield f'other_{number}: "<parameter=" OTHER_{number} ">\\n" ({value})'
    yield f"OTHER_{number}: /[^<>\\s]{{1,64}}/" + (f" & ~({known})" if known else "")
