"""What each kind of constraint lets through, and how bad ones are refused."""

import json

import pytest
from grammar_walks import PLAIN, THINKING, accepts, allowed_ids, takes

from ninfer.errors import (
    ArtifactError,
    ConstraintError,
    GenerationError,
    GrammarBackendError,
    RequestError,
)
from ninfer.frontend.grammar import Vocabulary
from ninfer.frontend.grammar.json_schema import MOST_PROPERTIES
from ninfer.frontend.grammar.matcher import GrammarConstraint
from ninfer.request import ChoiceSpec, GrammarSpec, JsonObjectSpec, JsonSchemaSpec, RegexSpec

PERSON = JsonSchemaSpec(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize("prompt", [PLAIN, THINKING], ids=["plain", "thinking"])
@pytest.mark.parametrize(
    ("spec", "good", "bad"),
    [
        (JsonObjectSpec(), '{"a": [1, {"b": null}]}', "[1]"),
        (JsonObjectSpec(), "{}", '{"a": 1} '),
        (PERSON, '{"name": "é\\n", "age": 3}', '{"name": "x"}'),
        (PERSON, '{\n  "name": "",\n  "age": 0\n}', '{"name": "x", "age": -1}'),
        (JsonSchemaSpec(True), "[true]", "yes"),
        (JsonSchemaSpec({"enum": ["a/b", 7]}), "7", '"a"'),
        (
            JsonSchemaSpec(
                {
                    "$defs": {"n": {"type": ["null", "array"], "items": {"$ref": "#/$defs/n"}}},
                    "$ref": "#/$defs/n",
                }
            ),
            "[null, [[]]]",
            "[1]",
        ),
        (RegexSpec(r"^[a-c]+/\d{2}$"), "abc/12", "abc/1"),
        (RegexSpec("a\nb"), "a\nb", "a b"),
        (RegexSpec(""), "", "x"),
        (ChoiceSpec(("yes", "yes, sir", "no")), "yes", "yes,"),
        (ChoiceSpec(("yes", "yes, sir", "no")), "yes, sir", "maybe"),
        (ChoiceSpec(('é"\\\n', "😀")), 'é"\\\n', "é"),
        (GrammarSpec('root ::= "(" root ")" | [0-9]+'), "((12))", "((1)"),
        (GrammarSpec('start: "a" b+\nb: "b" | "c"'), "abcb", "a"),
    ],
)
def test_answers_that_fit_are_whole_and_others_are_not(frontend, prompt, spec, good, bad):
    lead = "some thought\n</think>\n\n" if prompt is THINKING else ""
    assert accepts(frontend, spec, lead + good, prompt)
    assert not accepts(frontend, spec, lead + bad, prompt)


@pytest.mark.parametrize("spec", [JsonObjectSpec(), PERSON], ids=["object", "schema"])
def test_h5_white_space_inside_json_is_bounded(frontend, spec):
    constraint = frontend.new_constraint(PLAIN, spec)
    assert takes(frontend, constraint, "{")
    for space in ("\n\n", "     ", " \n ", "\n" + " " * 41):
        assert not takes(frontend, frontend.new_constraint(PLAIN, spec), "{" + space + '"name"')
    # Whatever white space a model likes best, it runs out.
    blanks = {frontend.tokenizer.encode(text)[0] for text in (" ", "\n", "\t", "\r")}
    spent = 0
    while spent < 60:
        liked = [index for index in allowed_ids(constraint) if index in blanks]
        if not liked:
            break
        assert constraint.advance(liked[0])
        spent += 1
    assert spent < 45


def test_the_librarys_switches_are_not_the_clients(frontend):
    spec = JsonSchemaSpec(
        {"type": "object", "x-guidance": {"whitespace_pattern": "[ ]+", "lenient": True}, "not": {}}
    )
    with pytest.raises(ConstraintError) as caught:
        frontend.new_constraint(PLAIN, spec)
    assert caught.value.code == "unsupported_json_schema"


def test_only_a_whole_answer_may_stop(frontend):
    constraint = frontend.new_constraint(PLAIN, RegexSpec("[0-9]{2,3}"))
    stops = set(frontend.stop_ids)
    digit = frontend.tokenizer.encode("7")[0]
    for expected in (False, False, True, True):
        assert constraint.may_stop is expected
        assert stops.isdisjoint(allowed_ids(constraint)) is not expected
        assert stops <= set(allowed_ids(constraint)) or not expected
        if len(allowed_ids(constraint)) > len(stops):
            assert constraint.advance(digit)
    assert set(allowed_ids(constraint)) == stops


def test_special_tokens_are_never_text(frontend):
    """Neither as bytes of a string, nor by their name in a grammar of the client."""
    special = set(frontend.tokenizer.special.values())
    anything = frontend.new_constraint(PLAIN, RegexSpec("(?s:.)*"))
    assert special & set(allowed_ids(anything)) == set(frontend.stop_ids)
    literal = frontend.new_constraint(PLAIN, ChoiceSpec(("<|im_start|>",)))
    assert takes(frontend, literal, "<|im_start|>")
    named = GrammarSpec('start: <|im_start|> "a" | "b" | <[0-799]> "c"')
    assert not special & set(allowed_ids(frontend.new_constraint(PLAIN, named)))


def test_masks_have_one_bit_for_each_id(frontend):
    size = frontend.tokenizer.addressable
    for prompt in (PLAIN, THINKING):
        mask = frontend.new_constraint(prompt, RegexSpec("(?s:.)*")).allowed()
        assert len(mask) == (size + 31) // 32 * 4
        assert int.from_bytes(mask, "little") >> size == 0


def test_ids_outside_the_vocabulary_are_refused(frontend):
    for prompt in (PLAIN, THINKING):
        constraint = frontend.new_constraint(prompt, RegexSpec("(?s:.)*"))
        assert not constraint.advance(-1)
        assert not constraint.advance(frontend.tokenizer.addressable)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (JsonSchemaSpec({"type": "foo"}), "invalid_json_schema"),
        (JsonSchemaSpec({"type": "string", "pattern": "("}), "invalid_json_schema"),
        (JsonSchemaSpec({"minimum": float("nan")}), "invalid_json_schema"),
        (JsonSchemaSpec({"title": "\ud800"}), "invalid_json_schema"),
        (JsonSchemaSpec({"$ref": "#/$defs/missing"}), "invalid_json_schema"),
        (JsonSchemaSpec({"not": {}}), "unsupported_json_schema"),
        (JsonSchemaSpec({"type": "array", "uniqueItems": True}), "unsupported_json_schema"),
        (JsonSchemaSpec({"type": "string", "format": "colour"}), "unsupported_json_schema"),
        (JsonSchemaSpec({"type": "string", "pattern": "(?=a)b"}), "unsupported_json_schema"),
        (JsonSchemaSpec({"$ref": "https://example.org/x"}), "unsupported_json_schema"),
        (JsonSchemaSpec(False), "unsatisfiable_json_schema"),
        (JsonSchemaSpec({"enum": []}), "unsatisfiable_json_schema"),
        (
            JsonSchemaSpec({"minimum": 3, "maximum": 1, "type": "integer"}),
            "unsatisfiable_json_schema",
        ),
        (JsonSchemaSpec({"$ref": "#"}), "unsatisfiable_json_schema"),
        (RegexSpec("("), "invalid_regex"),
        (RegexSpec("a(?=b)"), "invalid_regex"),
        (RegexSpec(r"[^\s\S]"), "invalid_regex"),
        (RegexSpec("\ud800"), "invalid_regex"),
        (ChoiceSpec(()), "invalid_choice"),
        (ChoiceSpec(("a", "")), "invalid_choice"),
        (ChoiceSpec(("\ud800",)), "invalid_choice"),
        (GrammarSpec(""), "invalid_grammar"),
        (GrammarSpec("root ::= ("), "invalid_grammar"),
        (GrammarSpec("start: missing"), "invalid_grammar"),
        (GrammarSpec("start: start"), "invalid_grammar"),
        (GrammarSpec("start: <no_such_token>"), "invalid_grammar"),
        (GrammarSpec("\ud800"), "invalid_grammar"),
        (GrammarSpec('{"grammars": [{"lark_grammar": "start: /a/"}]}'), "invalid_grammar"),
    ],
)
def test_h1_what_cannot_be_enforced_is_refused_by_name(frontend, spec, code):
    with pytest.raises(ConstraintError) as caught:
        frontend.new_constraint(PLAIN, spec)
    assert caught.value.code == code
    assert "\n" not in str(caught.value) and 10 < len(str(caught.value)) < 300


def test_deep_schemas_are_refused_and_not_a_crash(frontend):
    schema: dict = {}
    for _ in range(2000):
        schema = {"properties": {"a": schema}}
    with pytest.raises(ConstraintError):
        frontend.new_constraint(PLAIN, JsonSchemaSpec(schema))


class _BrokenMatcher:
    """A grammar library that gives up: at once, or on the token that it has just allowed."""

    def __init__(self, words: int, at_once: bool) -> None:
        self._words = words
        self._at_once = at_once

    def is_accepting(self) -> bool:
        return False

    def is_error(self) -> bool:
        return self._at_once

    def get_error(self) -> str:
        return "step\nlimit"

    def compute_bitmask(self) -> bytes:
        return b"\xff" * 4 * self._words

    def consume_token(self, token_id: int) -> bool:
        return False


@pytest.mark.parametrize("at_once", [True, False])
def test_h8_a_failing_library_is_not_the_clients_fault(frontend, at_once):
    vocabulary = Vocabulary(frontend.tokenizer, frontend.stop_ids)
    broken = _BrokenMatcher((vocabulary.size + 31) // 32, at_once)
    constraint = GrammarConstraint(vocabulary, broken, "unsupported_json_schema")
    with pytest.raises(
        GrammarBackendError, match="after 0 tokens of the answer: step limit"
    ) as caught:
        constraint.advance(0)
    assert not isinstance(caught.value, RequestError)


def wide(count: int, letter: str = "n") -> dict[str, object]:
    properties = {f"{letter}{index}": {"type": "integer"} for index in range(count)}
    return {"type": "object", "properties": properties}


def test_objects_of_thousands_of_optional_properties_are_enforced(frontend):
    spec = JsonSchemaSpec({"type": "array", "items": wide(MOST_PROPERTIES)})
    last = f"n{MOST_PROPERTIES - 1}"
    assert accepts(frontend, spec, f'[{{"n0": 1, "{last}": 2}}]')
    constraint = frontend.new_constraint(PLAIN, spec)
    assert not takes(frontend, constraint, f'[{{"n0": 1, "{last}": "')


def test_objects_beyond_that_are_refused_with_the_number(frontend):
    spec = JsonSchemaSpec({"$defs": {"a": wide(MOST_PROPERTIES + 1)}, "$ref": "#/$defs/a"})
    with pytest.raises(ConstraintError, match="2,401 properties; at most 2,400") as caught:
        frontend.new_constraint(PLAIN, spec)
    assert caught.value.code == "unsupported_json_schema"


def test_a_schema_that_proves_too_large_is_the_clients_to_change(frontend):
    several = JsonSchemaSpec({"anyOf": [wide(1000, letter) for letter in "abcd"]})
    constraint = frontend.new_constraint(PLAIN, several)
    with pytest.raises(ConstraintError, match=r"after 0 tokens.*items; max is") as caught:
        constraint.advance(frontend.tokenizer.encode("{")[0])
    assert caught.value.code == "unsupported_json_schema"


def test_more_symbols_than_the_library_counts_are_the_clients_to_change(frontend):
    many = JsonSchemaSpec({"anyOf": [wide(2000, letter) for letter in "abcdef"]})
    with pytest.raises(ConstraintError, match="too large for the grammar library, at once") as got:
        frontend.new_constraint(PLAIN, many)
    assert got.value.code == "unsupported_json_schema"


def test_a_dead_end_ends_this_request_only(frontend):
    """A grammar that asks for a special token leaves nothing; drafting towards it is no error."""
    constraint = frontend.new_constraint(PLAIN, GrammarSpec('start: "a" <|im_start|>'))
    assert constraint.advance(frontend.tokenizer.encode("a")[0])
    with pytest.raises(GenerationError, match="no token after 1 tokens"):
        constraint.allowed()
    constraint.rollback(1)
    assert allowed_ids(constraint) == frontend.tokenizer.encode("a")
    assert [any(mask) for mask in constraint.allowed_ahead(frontend.tokenizer.encode("aa"))] == [
        True,
        False,
    ]


def test_without_a_stop_id_no_answer_could_end(frontend):
    with pytest.raises(ArtifactError, match="no stop id"):
        Vocabulary(frontend.tokenizer, ())


def test_a_forced_text_comes_in_the_tokenizers_own_words(frontend):
    text = json.dumps({"system": 1})
    constraint = frontend.new_constraint(PLAIN, ChoiceSpec((text,)))
    for index in frontend.tokenizer.encode(text):
        assert allowed_ids(constraint) == [index]
        assert constraint.advance(index)
