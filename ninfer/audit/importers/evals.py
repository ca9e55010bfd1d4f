"""Result files of `ninfer evals run`: a header line, then an outcome for each item."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ninfer.audit.importers.fields import inner, listed, number, whole, word
from ninfer.audit.record import Origin, StoredResponse, Timings, TokenCounts


def is_evals(values: Any) -> bool:
    """Whether a first line is the header of such a file."""
    return isinstance(values, Mapping) and "suite" in values and "artifact" in values


def evals_responses(lines: Sequence[Any]) -> Iterator[StoredResponse]:
    """The responses of a file's lines, graded as the suite did it."""
    header, *outcomes = lines
    origin = Origin(
        server=word(header, "artifact"),
        model=word(header, "model")[:16],
        software=f"ninfer {word(header, 'ninfer')}",
    )
    for line in outcomes:
        answer = inner(line, "answer")
        reasons = [text for text in listed(line, "reasons") if isinstance(text, str)]
        grade: dict[str, Any] = {"kind": "graded", "right": not reasons}
        ids = tuple(i for i in listed(answer, "token_ids") if type(i) is int)
        yield StoredResponse(
            fixture=word(line, "task"),
            category=word(line, "task"),
            case=word(line, "id"),
            text=word(answer, "content"),
            reasoning=word(answer, "reasoning"),
            finish_reason=word(answer, "finish_reason"),
            tool_calls=tuple(c for c in listed(answer, "tool_calls") if isinstance(c, Mapping)),
            contract={**grade, "reasons": reasons} if reasons else grade,
            token_ids=ids or None,
            usage=TokenCounts(
                whole(answer, "prompt_tokens"), len(ids), whole(answer, "reasoning_tokens")
            ),
            timings=Timings(total=number(answer, "seconds")),
            origin=origin,
        )
