"""The server judges its own answers: counters by verdict and form, rates with their verdict."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serving import END, Server, serving, text_of

LOOP = "once more "


@pytest.fixture(scope="module")
def judged(
    micro_artifacts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Path]]:
    log = tmp_path_factory.mktemp("log") / "requests.jsonl"
    with serving(micro_artifacts["dense"], request_log_jsonl=log) as server:
        server.scripts.texts |= {
            "good": f"A short answer.{END}",
            "turning": LOOP * 120,
            "silent": END,
            "whole": f'{{"a": 1}}{END}',
        }
        yield server, log


def ask(server: Server, word: str, **members: Any) -> None:
    body = {"messages": text_of(word), "chat_template_kwargs": {"enable_thinking": False}}
    reply = server.post("/v1/chat/completions", {**body, **members})
    assert reply.status_code == 200, reply.text
    server.settled()


def counters(server: Server) -> dict[str, float]:
    page = httpx.get(f"{server.url}/metrics", timeout=60).text
    pairs = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def events(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["event"] == "request_done"]


@pytest.mark.parametrize(
    ("word", "members", "verdict", "ending"),
    [
        ("good", {"max_tokens": 64}, "usable", "natural_stop"),
        ("good", {"max_tokens": 3}, "output_limit", "output_limit"),
        ("turning", {"max_tokens": 600}, "loop", "output_limit"),
        ("silent", {"max_tokens": 9}, "empty", "natural_stop"),
    ],
)
def test_answers_are_counted_by_what_they_were_worth(
    judged: tuple[Server, Path], word: str, members: dict[str, Any], verdict: str, ending: str
) -> None:
    server, log = judged
    before = counters(server)
    ask(server, word, **members)
    after = counters(server)
    grown = {name: after[name] - before.get(name, 0) for name in after if "answers" in name}
    assert {name: value for name, value in grown.items() if value} == {
        f'ninfer_answers_total{{verdict="{verdict}"}}': 1,
        f'ninfer_answers_ended_total{{ending="{ending}"}}': 1,
    }
    done = events(log)[-1]
    assert done["rates_tokens_per_second"]["verdict"] == verdict.replace("_", " ")
    assert done["audit"]["verdict"] == verdict.replace("_", " ")
    tokens, rate = done["result"]["completion_tokens"], done["rates_tokens_per_second"]["decode"]
    seconds = done["timings_seconds"]["decode"]
    assert rate == (pytest.approx((tokens - 1) / seconds) if tokens > 1 else None)
    usable = after["ninfer_usable_tokens_total"] - before.get("ninfer_usable_tokens_total", 0)
    assert usable == (tokens if verdict == "usable" else 0)
    if verdict == "loop":
        assert done["audit"]["loop_period"] and done["audit"]["loop_share"] > 0.9
        assert LOOP.strip() not in log.read_text(encoding="utf-8")


def test_forms_are_counted(judged: tuple[Server, Path]) -> None:
    server, log = judged
    form = {"response_format": {"type": "json_object"}}
    before = counters(server)
    ask(server, "whole", max_tokens=64, **form)
    ask(server, "whole", max_tokens=3, **form)
    after = counters(server)
    for kept in ("yes", "no"):
        name = f'ninfer_structured_answers_total{{kept="{kept}"}}'
        assert after[name] - before.get(name, 0) == 1
    first, second = (event["audit"]["contract_kept"] for event in events(log)[-2:])
    assert (first, second) == (True, False)
