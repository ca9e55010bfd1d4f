"""The names of /metrics that others build boards on, and that what they count is counted."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Server, serving, text_of

CHAT = "/v1/chat/completions"
OFF = {"enable_thinking": False}
GAUGES = """
    max_concurrency max_context_tokens engine_ready requests_running requests_waiting
    requests_paused requests_prefilling requests_decode_ready requests_replaying
    requests_materializing device_kv_used_pages device_kv_capacity_pages device_state_used_slots
    device_state_capacity_slots host_context_used_bytes host_context_reserved_bytes
    host_context_capacity_bytes host_context_peak_bytes
"""
COUNTERS = """
    prompt_tokens prompt_tokens_cached prefill_tokens replayed_tokens generation_tokens
    decode_tokens spec_decode_rounds spec_decode_draft_tokens spec_decode_accepted_tokens
    spec_decode_fallback_steps preemptions snapshot_restores replay_restores
    context_transfer_bytes host_work_seconds device_wait_seconds response_failures
"""
LABELLED = {"requests": "outcome", "constraint_requests": "kind", "constraint_refusals": "code"}
HISTOGRAMS = ("time_to_first_token_seconds", "request_duration_seconds", "request_queue_seconds")


def values_of(server: Server) -> dict[str, float]:
    """The page's numbers by name and labels."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    split = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in split}


def test_every_name_is_there_from_the_start(micro_artifacts: dict[str, Path]) -> None:
    with serving(micro_artifacts["dense"]) as server:
        page = httpx.get(f"{server.url}/metrics").text
        found = set(values_of(server))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    assert {f"ninfer_{name}" for name in GAUGES.split()} <= found
    assert {f"ninfer_{name}_total" for name in COUNTERS.split()} <= found
    assert {kinds[f"ninfer_{name}"] for name in GAUGES.split()} == {"gauge"}
    for name in (*COUNTERS.split(), *LABELLED):
        assert kinds[f"ninfer_{name}_total"] == "counter", name
    for name in HISTOGRAMS:
        assert kinds[f"ninfer_{name}"] == "histogram", name
    assert any(name.startswith("ninfer_model_info{") for name in found)


@pytest.mark.parametrize(
    ("extra", "kind", "code"),
    [
        ({"guided_choice": ["a", "b"]}, "choice", None),
        ({"guided_regex": "[ab]c"}, "regex", None),
        ({"guided_regex": "(["}, "regex", "invalid_regex"),
        ({"guided_grammar": "root ::= foo"}, "grammar", "invalid_grammar"),
        ({"response_format": {"type": "json_object"}}, "json_object", None),
        ({"guided_json": {"not": {}}}, "json_schema", "unsupported_json_schema"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
            "tools",
            None,
        ),
    ],
    ids=str,
)
def test_forms_and_those_that_cannot_be_had(
    server: Server, extra: dict[str, Any], kind: str, code: str | None
) -> None:
    asked = f'ninfer_constraint_requests_total{{kind="{kind}"}}'
    refused = f'ninfer_constraint_refusals_total{{code="{code}"}}'
    before = values_of(server)
    reply = server.post(CHAT, {"messages": text_of("a form"), "max_tokens": 2, **OFF, **extra})
    assert reply.status_code == (400 if code else 200), reply.text
    after = values_of(server)
    assert after[asked] == before.get(asked, 0) + 1
    assert after.get(refused, 0) == before.get(refused, 0) + (code is not None)


def test_a_request_that_is_wrong_is_no_error_of_ours(server: Server) -> None:
    """Whether it is found before it has a place or behind."""
    invalid, error = (f'ninfer_requests_total{{outcome="{word}"}}' for word in ("invalid", "error"))
    before = values_of(server)
    for extra in ({"temperature": 9}, {"messages": text_of("long " * 2000)}):
        assert server.post(CHAT, {"messages": text_of("hi"), **extra}).status_code == 400
    after = values_of(server)
    assert after[invalid] == before.get(invalid, 0) + 2
    assert after.get(error, 0) == before.get(error, 0)


def test_the_time_of_steps_is_counted(server: Server) -> None:
    before = values_of(server)
    server.post(CHAT, {"messages": text_of("hi"), "max_tokens": 4, "ignore_eos": True})
    after = values_of(server)
    for name in ("host_work", "device_wait"):
        name = f"ninfer_{name}_seconds_total"
        assert after[name] > before[name], name
