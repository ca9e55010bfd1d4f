"""What a request asks of its output, as a grammar and then as the constraint of one sequence."""

import json
from functools import lru_cache
from typing import Final, assert_never

import llguidance

from ninfer.errors import ConstraintError
from ninfer.frontend.grammar.after_thought import AfterThought
from ninfer.frontend.grammar.json_schema import LIMITS, check_grammar, json_text, literal
from ninfer.frontend.grammar.matcher import GrammarConstraint, failure
from ninfer.frontend.grammar.tool_calls import call_rules
from ninfer.frontend.grammar.vocabulary import Vocabulary
from ninfer.request import (
    ChoiceSpec,
    ConstraintSpec,
    GrammarSpec,
    JsonObjectSpec,
    JsonSchemaSpec,
    RegexSpec,
    TokenConstraint,
    ToolCallSpec,
)

_KEPT_GRAMMARS: Final = 32
# White space between a closed thought and its answer.
_LEAD: Final = "LEAD: /[ \\t\\r\\n]{1,8}/\n"
_UNSATISFIABLE: Final = "no text satisfies the output constraint"


class ConstraintBuilder:
    """Makes constraints for one vocabulary. Compiled grammars are kept; thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._compiled = lru_cache(_KEPT_GRAMMARS)(self._compile)

    def build(self, spec: ConstraintSpec, *, starts_in_reasoning: bool) -> TokenConstraint:
        """The constraint of one answer, at its beginning.

        `starts_in_reasoning` leaves everything up to the end of the thought free, and white space
        behind it. Raises ConstraintError for a specification that is malformed, unsupported or
        unsatisfiable, GrammarBackendError if the grammar library fails on a sound one.
        """
        plain, behind_thought = _grammars(spec, self._vocabulary)
        code = _code(spec, "unsupported_json_schema")
        matcher, can_begin = self._compiled(plain, code)
        if not can_begin:
            raise ConstraintError(_UNSATISFIABLE, code=_code(spec, "unsatisfiable_json_schema"))
        if not starts_in_reasoning:
            return GrammarConstraint(self._vocabulary, matcher.deep_copy(), code)
        matcher, _ = self._compiled(behind_thought, code)
        answer = GrammarConstraint(self._vocabulary, matcher.deep_copy(), code)
        return AfterThought(self._vocabulary, answer)

    def _compile(self, grammar: str, code: str) -> tuple[llguidance.LLMatcher, bool]:
        """A matcher to be copied, and whether any answer can begin."""
        matcher = llguidance.LLMatcher(
            self._vocabulary.backend, grammar, log_level=0, limits=LIMITS
        )
        if matcher.is_error():
            raise failure(matcher.get_error(), "at once", code)
        # Asked before threads share it: a matcher that is asked cannot be copied meanwhile.
        mask = self._vocabulary.answer_mask(matcher.compute_bitmask(), matcher.is_accepting())
        return matcher, any(mask)


def _grammars(spec: ConstraintSpec, vocabulary: Vocabulary) -> tuple[str, str]:
    """The grammar of an answer alone, and of an answer behind a closed thought."""
    if isinstance(spec, GrammarSpec):
        answer = {"name": "answer", "lark_grammar": _users_lark(spec.text)}
        lead = {"lark_grammar": "start: LEAD? @answer\n" + _LEAD}
        plain = json.dumps({"grammars": [answer]})
        check_grammar(plain, "the grammar", "grammar", vocabulary.backend)
        return plain, json.dumps({"grammars": [lead, answer]})
    rules = _rules(spec)
    try:
        rules.encode()
    except UnicodeEncodeError:
        raise ConstraintError(
            "the output constraint holds an unpaired surrogate; send whole characters",
            code="invalid_choice" if isinstance(spec, ChoiceSpec) else "invalid_json_schema",
        ) from None
    from_lark = llguidance.LLMatcher.grammar_from_lark
    return (
        from_lark("start: answer\n" + rules),
        from_lark("start: LEAD? answer\n" + _LEAD + rules),
    )


def _rules(spec: JsonObjectSpec | JsonSchemaSpec | RegexSpec | ChoiceSpec | ToolCallSpec) -> str:
    """Lark rules of which `answer` is the answer."""
    match spec:
        case JsonObjectSpec():
            return f"answer: %json {json_text({'type': 'object'}, 'a JSON object')}\n"
        case JsonSchemaSpec(schema):
            return f"answer: %json {json_text(schema, 'the JSON schema')}\n"
        case RegexSpec(pattern):
            return f"answer: {_regex(pattern)}\n"
        case ChoiceSpec(choices):
            if not choices or "" in choices:
                raise ConstraintError(
                    "choices must be a list of one text or more, none of them empty",
                    code="invalid_choice",
                )
            return "answer: " + " | ".join(literal(text) for text in choices) + "\n"
        case ToolCallSpec():
            return call_rules(spec)
    assert_never(spec)


def _regex(pattern: str) -> str:
    if not pattern:
        return '""'
    try:
        check_grammar(llguidance.LLMatcher.grammar_from_regex(pattern), "the regex", "regex")
        return f"/{llguidance.regex_to_lark(pattern, '')}/"
    except UnicodeEncodeError:
        raise ConstraintError(
            "the regex holds an unpaired surrogate; send whole characters", code="invalid_regex"
        ) from None


def _users_lark(text: str) -> str:
    try:
        return llguidance.grammar_from("grammar", text)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise ConstraintError(f"the grammar: {reason}", code="invalid_grammar") from None


def _code(spec: ConstraintSpec, schema: str) -> str:
    """The word for a specification that cannot be had; `schema` is that for a JSON schema."""
    match spec:
        case RegexSpec():
            return "invalid_regex"
        case ChoiceSpec():
            return "invalid_choice"
        case GrammarSpec():
            return "invalid_grammar"
    return schema
