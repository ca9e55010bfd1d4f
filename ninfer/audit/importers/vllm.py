"""Results of `vllm bench serve --save-result --save-detailed`: one JSON object with lists."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from ninfer.audit.importers.fields import listed, whole, word
from ninfer.audit.record import Origin, StoredResponse, Timings, TokenCounts
from ninfer.errors import UsageError

_POINTS: Final = 200


def is_vllm(values: Any) -> bool:
    """Whether this is a result of vLLM's benchmark."""
    return isinstance(values, Mapping) and "total_output_tokens" in values and "duration" in values


def vllm_responses(values: Mapping[str, Any], where: str) -> Iterator[StoredResponse]:
    """A response for each request.

    The benchmark does not keep why an answer ended, so the ending is not told. Raises UsageError
    for a result without texts.
    """
    texts = listed(values, "generated_texts")
    if not texts:
        raise UsageError(f"{where}: holds no texts; run vllm bench serve with --save-detailed")
    lists = {name: listed(values, name) for name in ("input_lens", "output_lens", "ttfts", "itls")}
    errors = listed(values, "errors")
    mode = word(values, "label", "backend", "endpoint_type")
    for number, text in enumerate(texts):
        steps = _at(lists["itls"], number)
        first = _at(lists["ttfts"], number)
        waits = [s for s in steps if isinstance(s, int | float)] if isinstance(steps, list) else []
        first = first if isinstance(first, int | float) and first > 0 else None
        error = _at(errors, number)
        failed = isinstance(error, str) and bool(error)
        decode = sum(waits) if waits else None
        yield StoredResponse(
            fixture=word(values, "dataset_name") or "vllm-bench",
            case=str(number),
            mode=mode,
            text=text if isinstance(text, str) else "",
            finish_reason="error" if failed else "",
            error=str(error)[:500] if failed else None,
            usage=TokenCounts(
                whole({"n": _at(lists["input_lens"], number)}, "n"),
                whole({"n": _at(lists["output_lens"], number)}, "n"),
            ),
            timings=Timings(
                total=None if first is None else first + (decode or 0.0), first=first, decode=decode
            ),
            pieces=_pieces(first, waits, len(text) if isinstance(text, str) else 0),
            origin=Origin(model=word(values, "model_id"), software="vLLM"),
        )


def _at(values: Any, number: int) -> Any:
    return values[number] if number < len(values) else None


def _pieces(first: float | None, waits: list[float], length: int) -> tuple[tuple[float, int], ...]:
    """Points of the time line; pieces of one length, since theirs are not kept."""
    if first is None or not waits:
        return ()
    times = [first, *(first + at for at in accumulate(waits))]
    step = max(len(times) // _POINTS, 1)
    return tuple((times[n], length * (n + 1) // len(times)) for n in range(0, len(times), step))
