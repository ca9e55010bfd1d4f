"""Overload, clients that leave, clients that read slowly, failures, and the end of a server."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import CHAT, END, Server, cancelled, raw, send, serving, serving_engine, text_of, until

import ninfer.server.openai.chat as chat_module
from ninfer.engine import Engine, EngineOptions
from ninfer.errors import GenerationError, GrammarBackendError

LONG = {"max_tokens": 600, "ignore_eos": True, "enable_thinking": False}


@pytest.fixture(scope="module")
def narrow(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    """One answer at a time, and two that wait, as long as it takes."""
    engine = {"max_concurrency": 1, "max_pending_requests": 2, "pending_timeout_ms": 600_000}
    with serving(micro_artifacts["dense"], engine=engine, keep_alive_ms=50) as running:
        running.scripts.texts["crawl"] = "so slow " * 300
        running.scripts.pace["crawl"] = 0.02
        yield running
        running.settled()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_i8_a_wait_that_is_too_long_is_answered_before_headers(
    narrow: Server, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8: 503 with its code, not a broken stream; and 429 where there is no place to wait."""
    crawl = {**LONG, "messages": text_of("crawl")}
    with send(narrow, crawl), ThreadPoolExecutor(2) as pool:
        until(lambda: narrow.engine.snapshot().load.running == 1)
        body = {**LONG, "messages": text_of("later"), "stream": stream}
        waiting = [pool.submit(narrow.post, CHAT, body) for _ in range(2)]
        until(lambda: narrow.service.active == 3)
        full = narrow.post(CHAT, body)
        assert full.status_code == 429 and full.json()["error"]["code"] == "server_overloaded"
        assert int(full.headers["retry-after"]) > 0
        until(lambda: narrow.engine.snapshot().load.waiting == 2)
        # The running one has a place; for the others, time passes.
        runtime = narrow.engine._runtime
        monkeypatch.setattr(runtime, "_clock", lambda: time.monotonic() + 601)
        for reply in (future.result() for future in waiting):
            assert reply.status_code == 503
            assert reply.json()["error"]["code"] == "request_queue_timeout"
    narrow.settled()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("state", ["running", "waiting"])
def test_j1_j2_leaving_frees_everything(narrow: Server, stream: bool, state: str) -> None:
    """J1, J2: in the queue or at work, streamed or not."""
    left_before = cancelled(narrow)
    crawl = {**LONG, "messages": text_of("crawl"), "stream": stream}
    first = send(narrow, crawl)
    until(lambda: narrow.engine.snapshot().load.running == 1)
    left = first
    if state == "waiting":
        left = send(narrow, crawl)
        until(lambda: narrow.engine.snapshot().load.waiting == 1)
    before = narrow.service.active
    left.close()
    until(lambda: narrow.service.active == before - 1)
    first.close()
    narrow.settled()
    # Nobody came to an end of another kind.
    assert cancelled(narrow) == left_before + (2 if state == "waiting" else 1)
    load = narrow.engine.snapshot().load
    assert (load.free_slots, load.running, load.waiting) == (load.slots, 0, 0)


def test_leaving_while_the_prompt_is_made(narrow: Server, monkeypatch: Any) -> None:
    inside, go = threading.Event(), threading.Event()
    prepare = narrow.service.engine.prepare

    def slow(*given: Any) -> Any:
        inside.set()
        assert go.wait(120)
        return prepare(*given)

    monkeypatch.setattr(narrow.service.engine, "prepare", slow)
    connection = send(narrow, {"messages": text_of("hi")})
    assert inside.wait(60)
    connection.close()
    until(lambda: narrow.service.active == 0)
    go.set()
    narrow.settled()


def test_a_leaver_is_counted_as_one(narrow: Server) -> None:
    before = cancelled(narrow)
    with send(narrow, {**LONG, "messages": text_of("crawl"), "stream": True}) as connection:
        connection.recv(1000)
    narrow.settled()
    assert cancelled(narrow) == before + 1


def test_a_sign_of_life_in_silence(narrow: Server) -> None:
    narrow.scripts.texts["still"] = f"word{END}"
    narrow.scripts.pace["still"] = 0.2
    body = json.dumps({**LONG, "ignore_eos": False, "messages": text_of("still"), "stream": True})
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    data = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    answer = raw(narrow.port, data)
    assert b": keep-alive\n\n" in answer and answer.rstrip().endswith(b"0")
    assert b"data: [DONE]" in answer


def test_a_flood_is_refused_and_leaves_nothing(micro_artifacts: dict[str, Path]) -> None:
    """1,000 connections at once, 4 that run and 16 that wait: every one gets a clear answer."""
    engine = {"max_pending_requests": 16, "pending_timeout_ms": 600_000}
    with serving(micro_artifacts["dense"], engine=engine) as server:
        body = {"messages": text_of("flood"), "max_tokens": 4, "enable_thinking": False}
        codes = asyncio.run(_flood(server, body, 1000))
        assert set(codes) == {200, 429}, {code: codes.count(code) for code in set(codes)}
        assert codes.count(200) >= 20
        server.settled()
        assert server.post(CHAT, body).status_code == 200
        assert threading.active_count() < 60


async def _flood(server: Server, body: dict[str, Any], count: int) -> list[int]:
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head.encode() + data)
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    return await asyncio.gather(*(one() for _ in range(count)))


def test_a_slow_reader_gets_all_and_holds_nothing(micro_artifacts: dict[str, Path]) -> None:
    """The engine does not wait for it: what it has not read waits in the server."""
    with serving(micro_artifacts["dense"], send_buffer=4096) as server:
        text = "to be read later " * 20
        server.scripts.texts["unread"] = text + END
        body = {"messages": text_of("unread"), "stream": True, "enable_thinking": False}
        body["logprobs"], body["top_logprobs"] = True, 20
        with send(server, body) as connection:
            until(lambda: server.engine.snapshot().load.running == 1)
            until(lambda: server.engine.snapshot().load.running == 0, seconds=120)
            time.sleep(0.3)
            assert server.service.active == 1, "it was not slow enough to hold anything back"
            assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200
            found = b""
            while b"[DONE]" not in found[-2000:]:
                piece = connection.recv(1 << 16)
                assert piece, "the stream was broken off"
                found += piece
        deltas = re.findall(rb'"delta":({.*?}),"logprobs"', found)
        assert "".join(json.loads(delta).get("content", "") for delta in deltas) == text
        server.settled()


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff" * 500,
        b"GET /\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nxx\r\n0\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: \xff\r\nConnection: close\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{",
    ],
    ids=lambda data: repr(data)[:40],
)
def test_malformed_bytes_harm_nobody(server: Server, data: bytes) -> None:
    answer = raw(server.port, data, seconds=0.5)
    assert not answer or answer.split()[1][:1] == b"4", answer[:200]
    assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_failure_in_the_middle_is_no_finish(
    server: Server, stream: bool, monkeypatch: Any
) -> None:
    """NaN logits end one answer: 500, or an error event in a stream that began, never a finish."""

    class Broken:
        is_done = False
        place = 0

        def forced(self) -> int:
            if self.place == 3:
                raise GenerationError("the logits are not finite")
            return 65

        def advance(self, token_id: int) -> None:
            self.place += 1

    monkeypatch.setattr(server.engine, "_forcer", lambda prompt, options: Broken())
    body = {**LONG, "messages": text_of("nan")}
    if not stream:
        reply = server.post(CHAT, body)
        assert reply.status_code == 500 and reply.json()["error"]["code"] == "internal_error"
        assert "logits" not in reply.text
        assert reply.headers["x-should-retry"] == "false"
        return
    *chunks, error, done = server.events(CHAT, body)
    assert done == "[DONE]" and error["error"]["type"] == "server_error"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


def test_h8_a_fault_of_ours_is_no_400(server: Server, monkeypatch: Any) -> None:
    """H8: a broken grammar library must not look like a context that is full."""

    def broken(*given: Any) -> Any:
        raise GrammarBackendError("out of fuel")

    monkeypatch.setattr(server.engine._model.frontend, "new_constraint", broken)
    body = {**LONG, "ignore_eos": False, "messages": text_of("a"), "guided_regex": "a"}
    reply = server.post(CHAT, body)
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "grammar_backend_error"


def test_a_form_that_proves_too_large_is_the_clients_to_change(server: Server) -> None:
    """Objects of many properties are fine; more than the grammar library bears are a 400."""
    counts = {"small": (1, 1500), "large": (4, 1500)}
    schemas = {
        name: {
            "anyOf": [
                {"type": "object", "properties": {f"{a}_{b}": {"const": 1} for b in range(each)}}
                for a in range(kinds)
            ]
        }
        for name, (kinds, each) in counts.items()
    }
    body = {"messages": text_of("a"), "max_tokens": 3, "enable_thinking": False}
    assert server.post(CHAT, {**body, "guided_json": schemas["small"]}).status_code == 200
    reply = server.post(CHAT, {**body, "guided_json": schemas["large"]})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["code"] == "unsupported_json_schema" and error["param"] == "guided_json"
    assert "ask for fewer properties" in error["message"]
    server.settled()


def test_a_defect_of_a_route_is_a_500_without_words(server: Server, monkeypatch: Any) -> None:
    def broken(*given: Any) -> Any:
        raise ZeroDivisionError("secret inner state")

    monkeypatch.setattr(chat_module, "ask_of", broken)
    reply = server.post(CHAT, {"messages": text_of("hi")})
    assert reply.status_code == 500 and "secret" not in reply.text
    assert reply.json()["error"]["code"] == "internal_error"


def test_an_engine_that_has_failed_is_seen(micro_artifacts: dict[str, Path]) -> None:
    engine = Engine.load(
        EngineOptions(artifact=micro_artifacts["dense"], max_context=256, device="cpu")
    )
    with serving_engine(engine) as server:

        def fail() -> Any:
            raise RuntimeError("the card is gone")

        engine.step = fail  # a test's own fault
        reply = server.post(CHAT, {"messages": text_of("hi")})
        assert reply.status_code == 503 and reply.json()["error"]["code"] == "unavailable"
        health = httpx.get(f"{server.url}/health", timeout=60)
        assert health.status_code == 503 and "card is gone" in health.json()["reason"]
        assert "ninfer_engine_ready 0.0" in httpx.get(f"{server.url}/metrics", timeout=60).text


def test_the_end_drains_and_then_breaks_off(micro_artifacts: dict[str, Path]) -> None:
    """Who is done in time is whole; the others get an error; new ones go elsewhere."""
    with serving(micro_artifacts["dense"]) as server:
        server.scripts.texts["brief"] = f"a brief answer{END}"
        server.scripts.pace["brief"] = 0.05
        server.scripts.texts["endless"] = "on and on " * 500
        server.scripts.pace["endless"] = 0.05
        with ThreadPoolExecutor(2) as pool:
            off = {"enable_thinking": False}
            brief = pool.submit(server.post, CHAT, {"messages": text_of("brief"), **off})
            until(lambda: server.engine.snapshot().load.running == 1)
            body = {**LONG, "messages": text_of("endless")}
            endless = pool.submit(server.events, CHAT, body)
            until(lambda: server.engine.snapshot().load.running == 2)
            asyncio.run_coroutine_threadsafe(server.service.drain(8), server.loop)
            until(lambda: server.service.trouble is not None)
            refused = server.post(CHAT, {"messages": text_of("hi")})
            assert refused.status_code == 503
            assert httpx.get(f"{server.url}/health", timeout=60).status_code == 503
            whole = brief.result().json()["choices"][0]
            assert whole["message"]["content"] == "a brief answer"
            *chunks, error, done = endless.result()
            assert "shutting down" in error["error"]["message"] and done == "[DONE]"
            assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
