"""EvalScope's output folder: `predictions/MODEL/DATASET.jsonl`, and `reviews/` of the same shape.

Lines of its versions 0 and 1 are read; times of the first token are there since 1.14. A single
file of either kind can be given as well.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ninfer.audit.importers.fields import inner, listed, number, whole, word
from ninfer.audit.record import Origin, StoredResponse, Timings, TokenCounts
from ninfer.audit.response_file import read_file
from ninfer.errors import UsageError
from ninfer.json_text import parse_json


def is_evalscope(values: Any) -> bool:
    """Whether a line is a prediction or a review."""
    if not isinstance(values, Mapping):
        return False
    old = "raw_input" in values or "answer_id" in values
    return "model_output" in values or "sample_score" in values or old


def evalscope_folder(folder: Path) -> Iterator[StoredResponse]:
    """All predictions below a folder, graded by the reviews beside them.

    Raises UsageError for a folder without predictions.
    """
    files = sorted(folder.glob("**/predictions/**/*.jsonl"))
    if not files:
        raise UsageError(f"{folder}: has no predictions/MODEL/DATASET.jsonl of EvalScope")
    for file in files:
        parts = list(file.parts)
        place = len(parts) - 1 - parts[::-1].index("predictions")
        review = Path(*parts[:place], "reviews", *parts[place + 1 :])
        reviews = _by_index(review) if review.is_file() else {}
        for index, line in _by_index(file).items():
            yield evalscope_response(line, file.stem, index, reviews.get(index))


def _by_index(file: Path) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for place, line in enumerate(read_file(file).split("\n")):
        if line.strip():
            values = parse_json(line, f"{file}:{place + 1}", UsageError)
            if isinstance(values, Mapping):
                index = whole(values, "index")
                found[str(place if index is None else index)] = values
    return found


def evalscope_response(
    line: Mapping[str, Any], dataset: str, index: str, review: Mapping[str, Any] | None = None
) -> StoredResponse:
    """One prediction; `review` or the line itself may hold its grade."""
    output = inner(line, "model_output") or line
    choices = listed(output, "choices")
    choice = choices[0] if choices else {}
    message = inner(choice, "message")
    text, reasoning = _texts(message.get("content"))
    score = inner(line, "sample_score") or inner(review or {}, "sample_score")
    if not choices:  # a review alone
        text = word(inner(score, "score"), "prediction")
    error = output.get("error")
    usage = inner(output, "usage")
    return StoredResponse(
        fixture=dataset,
        category=dataset,
        case=index,
        text=text,
        reasoning=reasoning or word(message, "reasoning_content", "reasoning"),
        finish_reason=word(choice, "stop_reason", "finish_reason"),
        error=str(error)[:500] if error else None,
        contract=_grade(choice, score, review),
        usage=TokenCounts(
            whole(usage, "input_tokens", "prompt_tokens"),
            whole(usage, "output_tokens", "completion_tokens"),
            whole(usage, "reasoning_tokens"),
            whole(usage, "input_tokens_cache_read"),
        ),
        timings=Timings(
            total=number(output, "time"), first=number(inner(output, "perf_metrics"), "ttft")
        ),
        origin=Origin(model=word(output, "model") or word(line, "model"), software="EvalScope"),
    )


def _texts(content: Any) -> tuple[str, str]:
    """Text and reasoning of a message, which may be a list of parts."""
    if isinstance(content, str):
        return content, ""
    text = reasoning = ""
    for part in content if isinstance(content, list) else ():
        text += word(part, "text")
        reasoning += word(part, "reasoning")
    return text, reasoning


def _grade(
    choice: Any, score: Mapping[str, Any], review: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    found = inner(score, "score")
    values = inner(found, "value")
    if values:
        main = number(values, word(found, "main_score_name"), *values)
        taken = word(found, "extracted_prediction") or word(found, "prediction")
        return _graded(main is not None and main >= 1.0, taken)
    old = listed(review or {}, "choices")
    result = inner(old[0], "review") if old else inner(choice, "review")
    if "result" not in result:
        return None
    return _graded(result["result"] is True or result["result"] == 1, word(result, "pred"))


def _graded(right: bool, taken: str) -> dict[str, Any]:
    if right:
        return {"kind": "graded", "right": True}
    shown = taken.strip()[:80] or "nothing that could be read"
    return {"kind": "graded", "right": False, "reasons": [f"EvalScope graded {shown!r} as wrong"]}
