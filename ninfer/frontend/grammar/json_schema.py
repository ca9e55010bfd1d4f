"""JSON schemas as grammar expressions, checked one by one and refused by name."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import llguidance

from ninfer.errors import ConstraintError, GrammarBackendError

# At most a few blanks, or one line break with its indentation: white space cannot go on for ever.
_WHITE_SPACE: Final = r"[ \t]{1,4}|\r?\n[ \t]{0,40}"
# The library's own bound ends at 500 properties. One token takes it 50 ms at ours.
MOST_PROPERTIES: Final = 2400
LIMITS: Final = llguidance.LLParserLimits(
    max_items_in_row=4 * MOST_PROPERTIES + 1000, step_max_items=500_000, verbose_errors=False
)
# The library tells its refusals apart only by their words.
# Rows of the parser, and the panic where symbols run out of numbers.
_TOO_LARGE: Final = ("items; max is", "symbols.len()")
_UNSUPPORTED: Final = (
    "unimplemented",
    "not supported",
    "only supported",
    "unknown format",
    "not disjoint",
    "retrieving it failed",
    "too large",
    "too big",
    "too many",
    "too complex",
    "limit",
    "fuel",
    *_TOO_LARGE,
)


def json_text(schema: Mapping[str, Any] | bool, where: str, *, lenient: bool = False) -> str:
    """A schema as JSON text with our options in it, for a `%json` expression.

    White space in what it describes is bounded. `lenient` leaves out keywords that the library does
    not have. Raises ConstraintError, naming `where`, for a schema that is malformed, unsupported
    or unsatisfiable.
    """
    if schema is False:
        raise ConstraintError(
            f"{where} is false, which no value satisfies", code="unsatisfiable_json_schema"
        )
    options = {"whitespace_pattern": _WHITE_SPACE, "lenient": lenient, "coerce_one_of": lenient}
    _check_sizes(schema, where)
    members = {} if schema is True else {**schema, "x-guidance": options}
    members.setdefault("x-guidance", options)
    try:
        text = json.dumps(members, ensure_ascii=False, allow_nan=False)
        text.encode()
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text)
    except UnicodeEncodeError:
        raise ConstraintError(
            f"{where} holds an unpaired surrogate; send whole characters",
            code="invalid_json_schema",
        ) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise _refusal(str(error), where, "json_schema") from None
    check_grammar(grammar, where, "json_schema")
    return text


def _check_sizes(schema: Mapping[str, Any] | bool, where: str) -> None:
    stack: list[Any] = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            properties = item.get("properties")
            if isinstance(properties, Mapping) and len(properties) > MOST_PROPERTIES:
                raise ConstraintError(
                    f"{where} has an object of {len(properties):,} properties; at most "
                    f"{MOST_PROPERTIES:,} can be enforced: nest them, or leave the schema out",
                    code="unsupported_json_schema",
                )
            stack += item.values()
        elif isinstance(item, list | tuple):
            stack += item


def is_too_large(message: str) -> bool:
    """Whether a complaint of the library is about the size of what it was given."""
    return any(words in message.lower() for words in _TOO_LARGE)


def check_grammar(
    grammar: str, where: str, kind: str, tokenizer: llguidance.LLTokenizer | None = None
) -> None:
    """Compile a grammar for its errors alone; `tokenizer` if it may name tokens.

    Raises ConstraintError whose code ends in `kind`, GrammarBackendError if the library breaks.
    """
    message = _complaint(grammar, tokenizer)
    if message:
        raise _refusal(message, where, kind)


# Agents send the same hundreds of tools with every request.
@lru_cache(2048)
def _complaint(grammar: str, tokenizer: llguidance.LLTokenizer | None = None) -> str:
    failed, messages = llguidance.LLMatcher.validate_grammar_with_warnings(
        grammar, tokenizer, limits=LIMITS
    )
    return " ".join(messages) if failed else ""


def literal(text: str) -> str:
    """A text as a literal of a grammar."""
    return json.dumps(text, ensure_ascii=False)


def _first_line(message: str) -> str:
    """A message of the library in one short line."""
    line = " ".join(message.split())
    return line if len(line) <= 200 else line[:197] + "..."


def _refusal(message: str, where: str, kind: str) -> ConstraintError:
    lower = message.lower()
    shown = f"{where}: {_first_line(message)}"
    if ("panic" in lower or "internal error" in lower) and not is_too_large(message):
        raise GrammarBackendError(f"the grammar library broke at {shown}")
    if kind != "json_schema":
        return ConstraintError(shown, code=f"invalid_{kind}")
    if "unsatisfiable" in lower:
        return ConstraintError(shown, code="unsatisfiable_json_schema")
    if any(word in lower for word in _UNSUPPORTED):
        return ConstraintError(shown, code="unsupported_json_schema")
    return ConstraintError(shown, code="invalid_json_schema")
