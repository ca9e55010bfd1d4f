"""Random schemas and random draws under their masks: what comes out parses and validates."""

import json
import random
import re
from typing import Any

import jsonschema
import pytest
from grammar_walks import PLAIN, random_answer

from ninfer.errors import ConstraintError
from ninfer.request import JsonSchemaSpec, ToolCallSpec, ToolRule

SCHEMAS_IN_A_TEST = 30


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    leaves = (text, number, plain, members)
    inner = (array, branches, record, record)
    return rng.choice(leaves if depth > 2 else leaves + inner)(rng, depth)


def text(rng: random.Random, depth: int) -> dict[str, Any]:
    if rng.random() < 0.2:
        return {"type": "string", "pattern": rng.choice(["^[a-z]{2,4}$", "[0-9]+$", "^(ab|é)*$"])}
    least = rng.randrange(3)
    return {"type": "string", "minLength": least, "maxLength": least + rng.randrange(9)}


def number(rng: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": rng.choice(["integer", "number"])}
    if rng.random() < 0.5:
        schema |= {"minimum": rng.randrange(-20, 5), "exclusiveMaximum": rng.randrange(6, 300)}
    if rng.random() < 0.2:
        schema["multipleOf"] = rng.choice([2, 5])
    return schema


def plain(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": rng.choice(["boolean", "null"])}


def members(rng: random.Random, depth: int) -> dict[str, Any]:
    some = rng.sample(["a", "é\n", 1, None, True, 'q"', [1], {"z": 0}], rng.randint(1, 4))
    return {"const": some[0]} if rng.random() < 0.3 else {"enum": some}


def array(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.randrange(3)
    schema = {"type": "array", "items": random_schema(rng, depth + 1), "minItems": least}
    if rng.random() < 0.3:
        schema["prefixItems"] = [random_schema(rng, depth + 1) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.5:
        schema["maxItems"] = least + rng.randrange(3)
    return schema


def branches(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]}


def record(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(["a", "b", "the", "ü", "x y", 'k"q'], rng.randrange(5))
    others = random_schema(rng, depth + 1)
    return {
        "type": "object",
        "properties": {name: random_schema(rng, depth + 1) for name in names},
        "required": [name for name in names if rng.random() < 0.5],
        "additionalProperties": rng.choice([False, others]),
    }


@pytest.mark.parametrize("part", range(5))
def test_random_draws_satisfy_random_schemas(frontend, part):
    check(frontend, range(part * SCHEMAS_IN_A_TEST, (part + 1) * SCHEMAS_IN_A_TEST))


@pytest.mark.soak
def test_soak_random_draws_satisfy_random_schemas(frontend, record_property):
    record_property("count", check(frontend, range(1000, 6000)))
    record_property("unit", "answers drawn at random under a random JSON schema")


def check(frontend, seeds: range) -> int:
    """Draw an answer for each seed; how many ended. Nearly all must, or nothing was shown."""
    ended = 0
    for seed in seeds:
        rng = random.Random(seed)
        schema = random_schema(rng)
        constraint = frontend.new_constraint(PLAIN, JsonSchemaSpec(schema))
        answer = random_answer(frontend, constraint, rng, limit=400, soft=60)
        if answer is not None:
            ended += 1
            value = json.loads(answer)
            jsonschema.Draft202012Validator(schema).validate(value)
    assert ended >= 0.9 * len(seeds)
    return ended


def parameter(rng: random.Random) -> dict[str, Any]:
    """A schema that a strict tool may have for a parameter."""
    kind = rng.randrange(5)
    if kind == 0:
        least = rng.randrange(3)
        return {"type": "string", "minLength": least, "maxLength": least + rng.randrange(9)}
    if kind == 1:
        return {"enum": rng.sample(["c", "long text", 3, None], 2)}
    if kind == 2:
        return {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}
    return record(rng, 1) if kind == 3 else array(rng, 1)


def value_of(schema: dict[str, Any], raw: str) -> Any:
    if schema.get("type") == "string":
        return raw
    if "enum" in schema:
        return next(one for one in schema["enum"] if raw in (one, json.dumps(one)))
    return json.loads(raw)


@pytest.mark.parametrize("part", range(3))
def test_random_draws_satisfy_strict_tools(frontend, part):
    """The arguments of every call, read back value by value, satisfy the schema as a whole."""
    calls = 0
    for seed in range(part * 20, part * 20 + 20):
        rng = random.Random(seed)
        properties = {name: parameter(rng) for name in rng.sample("abcdef", rng.randint(1, 4))}
        required = [name for name in properties if rng.random() < 0.5]
        schema = {"type": "object", "properties": properties, "required": required}
        schema["additionalProperties"] = False
        spec = ToolCallSpec((ToolRule("t", schema, strict=True),), required=True, parallel=False)
        constraint = frontend.new_constraint(PLAIN, spec)
        answer = random_answer(frontend, constraint, rng, limit=500, soft=60)
        if answer is None:
            continue
        text = answer.decode()
        found = re.findall(r"<parameter=(.)>\n(.*?)\n</parameter>\n", text, re.DOTALL)
        assert len(dict(found)) == len(found)
        calls += 1
        arguments = {name: value_of(properties[name], raw) for name, raw in found}
        jsonschema.Draft202012Validator(schema).validate(arguments)
    assert calls >= 10


KEYWORDS = ("type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref", "properties", "required")
KEYWORDS += ("items", "minLength", "maxLength", "additionalProperties", "$defs", "pattern", "a")


def garbage(rng: random.Random, depth: int = 0) -> Any:
    """A value that looks like a schema now and then."""
    leaves = ("string", "object", "#", "#/$defs/a", "#/properties/a", "a", None, True, 3, -1, 1.5)
    pick = rng.random()
    if depth > 4 or pick < 0.3:
        return rng.choice(leaves)
    if pick < 0.45:
        return [garbage(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(KEYWORDS): garbage(rng, depth + 1) for _ in range(rng.randrange(4))}


@pytest.mark.parametrize("strict", [True, False])
def test_garbage_for_schemas_is_enforced_or_refused(frontend, strict):
    """Nothing that a client can send as a schema ends in another error."""
    outcomes = {True: 0, False: 0}
    for seed in range(600):
        rng = random.Random(seed)
        parameters = {"properties": {"a": garbage(rng)}, "$defs": {"a": garbage(rng)}}
        if rng.random() < 0.3:
            parameters[rng.choice(KEYWORDS)] = garbage(rng)
        tool = ToolRule("t", parameters, strict=strict)
        for spec in (ToolCallSpec((tool,), required=True), JsonSchemaSpec(parameters)):
            try:
                frontend.new_constraint(PLAIN, spec).allowed()
                outcomes[True] += 1
            except ConstraintError:
                outcomes[False] += 1
    assert min(outcomes.values()) > 100


def test_repeated_branches_cost_nothing(frontend):
    """Thirty definitions that each name the next one twice are not a billion branches."""
    definitions: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)
    }
    definitions["d30"] = {"type": "string"}
    parameters = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    frontend.new_constraint(PLAIN, ToolCallSpec((ToolRule("t", parameters),), required=True))
