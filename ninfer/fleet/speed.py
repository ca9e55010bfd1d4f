"""Speed of a server by the number of streams: orders for bursts, and rows from their answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ninfer.audit import Origin, StoredResponse, Timings, TokenCounts, Verdict, judge
from ninfer.audit.counters import counted_drafts, drafts_since
from ninfer.audit.record import Drafts
from ninfer.client.cards import parse_models
from ninfer.client.chunks import error_message
from ninfer.errors import ServerError
from ninfer.fleet import burst
from ninfer.fleet.box import Box

# Runs one order somewhere and returns what `burst.burst` returns.
Runner = Callable[[Mapping[str, Any]], Any]

DEFAULT: Final = "server default"
GREEDY: Final = "greedy"
SAMPLINGS: Final = (DEFAULT, GREEDY)
METRICS: Final = "/metrics"
_MODELS: Final = "/v1/models"
_WARM_UP_TOKENS: Final = 16
_STARTING_SECONDS: Final = 60.0

_TOPICS: Final = (
    *("how bridges carry loads", "the history of printing", "why the sea is salty"),
    *("how bread is made", "the life of bees", "how sailing ships go against the wind"),
    *("the water cycle", "how languages change", "what makes a good garden"),
    *("how clocks keep time", "the making of glass", "why leaves change colour"),
    *("how maps are drawn", "the rules of chess", "how rivers shape valleys", "how kites fly"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """Whom and what to ask. `key` is shown nowhere."""

    root: str
    key: str
    model: str
    tokens: int
    seconds: float
    extensions: bool


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One burst. Rates in tokens per second, `wall` in seconds, `cost` in $ per million tokens.

    `per_stream` is the mean of what the server says of each request's decoding; `aggregate` are all
    tokens over the time from the first request to the last answer; `usable_rate` counts those of
    usable answers only, and `cost` is theirs. `scaling` compares the aggregate with that of the
    first row of its sampling. None is what the server does not tell.
    """

    sampling: str
    streams: int
    answered: int
    usable: int
    tokens: int
    wall: float
    per_stream: float | None
    aggregate: float
    usable_rate: float
    tokens_per_round: float | None
    acceptance: float | None
    scaling: float | None
    cost: float | None


def run_here(order: Mapping[str, Any]) -> Any:
    """Run an order in this process."""
    return burst.burst(dict(order))


def run_on(box: Box, seconds: float) -> Runner:
    """Runs orders on a machine, over its loopback; only a Python is needed there."""
    source = Path(burst.__file__).read_text(encoding="utf-8")

    def run(order: Mapping[str, Any]) -> Any:
        call = f"print(json.dumps(burst(json.loads({json.dumps(order)!r}))))"
        program = f"{source}\n\n{call}\n"
        ran = box.run("python3 -", stdin=program, timeout=seconds + _STARTING_SECONDS)
        if ran.status != 0:
            said = " ".join(ran.err.split())[-300:] or "no word"
            raise ServerError(f"the burst on the machine ended with status {ran.status}: {said}")
        try:
            return json.loads(ran.out)
        except ValueError:
            raise ServerError(
                f"the burst on the machine wrote no JSON: {ran.out[:200]!r}"
            ) from None

    return run


def find_model(run: Runner, root: str, key: str, seconds: float) -> str:
    """The first model that the server lists. Raises ServerError with the status, if any came."""
    order = {"root": root, "key": key, "seconds": seconds, "pages": [_MODELS], "bodies": []}
    status, text = run(order)["before"][_MODELS]
    if status == 0:
        raise ServerError(f"{root}: no server answers ({text}); 'ninfer log' tells why")
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if status != 200:
        raise ServerError(f"{root}: {status} {error_message(body) or text[:200]}", status=status)
    names = [card.id for card in parse_models(body)]
    if not names:
        raise ServerError(f"{root}: lists no model; name one with --model")
    return names[0]


def measure(
    run: Runner, question: Question, sampling: str, streams: int
) -> tuple[list[StoredResponse], Drafts | None, float]:
    """Warm up, then one burst: its responses, what was drafted for it, and its seconds."""
    run(_order(question, sampling, streams, min(_WARM_UP_TOKENS, question.tokens)))
    order = _order(question, sampling, streams, question.tokens)
    found = run(order)
    answers = found["answers"]
    bodies = order["bodies"]
    responses = [
        _response(question, sampling, streams, number, body, answer)
        for number, (body, answer) in enumerate(zip(bodies, answers, strict=True))
    ]
    before, after = (counted_drafts(_page(found[when])) for when in ("before", "after"))
    wall = max(a["ended"] for a in answers) - min(a["began"] for a in answers)
    return responses, drafts_since(before, after), wall


def row_of(
    verdicts: Sequence[Verdict],
    drafts: Drafts | None,
    wall: float,
    first: SpeedRow | None,
    price: float | None,
) -> SpeedRow:
    """The figures of one burst; `price` in $/h, None when nobody knows it."""
    responses = [verdict.response for verdict in verdicts]
    rates = [rate for response in responses if (rate := response.decode_rate) is not None]
    tokens = sum(response.usage.completion or 0 for response in responses)
    good = [verdict.response.usage.completion or 0 for verdict in verdicts if verdict.usable]
    aggregate, usable_rate = tokens / wall, sum(good) / wall
    least = first.aggregate if first else aggregate
    known = price is not None and usable_rate > 0
    return SpeedRow(
        sampling=responses[0].sampling,
        streams=len(responses),
        answered=sum(response.error is None for response in responses),
        usable=len(good),
        tokens=tokens,
        wall=wall,
        per_stream=sum(rates) / len(rates) if rates else None,
        aggregate=aggregate,
        usable_rate=usable_rate,
        tokens_per_round=drafts.tokens_per_round if drafts else None,
        acceptance=drafts.acceptance if drafts else None,
        scaling=aggregate / least if least else None,
        cost=(price or 0.0) / 3600 / usable_rate * 1e6 if known else None,
    )


def bench(
    run: Runner,
    question: Question,
    streams: Sequence[int],
    price: float | None,
    seen: Callable[[SpeedRow], None] = lambda row: None,
) -> tuple[list[SpeedRow], list[Verdict]]:
    """Every number of streams with every sampling; `seen` gets each row when it is there."""
    rows: list[SpeedRow] = []
    verdicts: list[Verdict] = []
    for sampling in SAMPLINGS:
        first: SpeedRow | None = None
        for number in streams:
            responses, drafts, wall = measure(run, question, sampling, number)
            judged = [judge(response) for response in responses]
            row = row_of(judged, drafts, wall, first, price)
            first = first or row
            rows.append(row)
            verdicts += judged
            seen(row)
    return rows, verdicts


def rows_as_json(rows: Sequence[SpeedRow]) -> list[dict[str, Any]]:
    """The rows as JSON data."""
    return [asdict(row) for row in rows]


def _order(question: Question, sampling: str, streams: int, tokens: int) -> dict[str, Any]:
    bodies = [_body(question, sampling, streams, number, tokens) for number in range(streams)]
    return {
        "root": question.root,
        "key": question.key,
        "seconds": question.seconds,
        "pages": [METRICS],
        "bodies": bodies,
    }


def _body(
    question: Question, sampling: str, streams: int, number: int, tokens: int
) -> dict[str, Any]:
    # Distinct from the first words on, and between bursts too: no kept prefix helps any of them.
    topic = _TOPICS[number % len(_TOPICS)]
    text = (
        f"Essay {number + 1} of {streams}, for a reader who knows nothing of it. Write at length, "
        f"in several sections and without lists, about {topic}."
    )
    body: dict[str, Any] = {
        "model": question.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "seed": number,
    }
    if sampling == GREEDY:
        body["temperature"] = 0
    if question.extensions:
        body["chat_template_kwargs"] = {"enable_thinking": False}
    return body


def _page(pages: Mapping[str, Any]) -> str:
    status, text = pages[METRICS]
    return text if status == 200 else ""


def _response(
    question: Question,
    sampling: str,
    streams: int,
    number: int,
    body: Mapping[str, Any],
    answer: Mapping[str, Any],
) -> StoredResponse:
    try:
        found: Any = json.loads(answer["text"]) if answer["status"] == 200 else {}
        choice = found["choices"][0]
        message, usage, times = choice["message"], found["usage"], found.get("timings") or {}
        text, reason = message.get("content") or "", choice["finish_reason"] or ""
        told = TokenCounts(usage["prompt_tokens"], usage["completion_tokens"])
        error = None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        message, times, text, reason, told = {}, {}, "", "error", TokenCounts()
        said = " ".join(str(answer["text"]).split())[:300]
        error = f"{answer['status'] or 'no answer'}: {said}"
    return StoredResponse(
        fixture=f"essay-{number + 1}",
        category=f"{streams} streams",
        case=f"{streams} streams",
        sampling=sampling,
        seed=number,
        request=body,
        text=text,
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        finish_reason=reason,
        error=error,
        usage=told,
        timings=Timings(
            total=answer["ended"] - answer["began"],
            prefill=_seconds(times, "prompt_ms"),
            decode=_seconds(times, "predicted_ms"),
        ),
        origin=Origin(question.root, question.model),
        cut=True,
    )


def _seconds(times: Mapping[str, Any], name: str) -> float | None:
    value = times.get(name)
    return value / 1000 if isinstance(value, int | float) else None
