"""The gateway's rules: who is asked, what is asked again, how broken streams end, what keys may."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_serving import (
    SECRET,
    ClusterServer,
    RunningGateway,
    Socket,
    answers,
    breaks_off,
    dies,
    gateway,
    report_of,
)
from serving import raw, text_of

from ninfer.cluster.choice import LEAST
from ninfer.cluster.keys import GatewayKeys, gateway_headers
from ninfer.cluster.measure import measure
from ninfer.cluster.options import MeasureOptions
from ninfer.errors import UsageError

ASKED = {"messages": text_of("hello"), "max_tokens": 4}


@pytest.fixture
def front() -> Iterator[RunningGateway]:
    with gateway(LEAST, wait=10.0) as running:
        yield running


def counts_of(front: RunningGateway) -> dict[str, float]:
    found = {}
    for line in front.get("/metrics").text.splitlines():
        if line.startswith("ninfer_cluster_attempts_total"):
            found[line.split('"')[1]] = float(line.rpartition(" ")[2])
    return found


def test_a_whole_answer_is_asked_for_once_more_when_its_replica_dies(front: RunningGateway):
    with closing(Socket(dies)) as first, closing(Socket(answers(b'{"ok":1}'))) as second:
        front.tell(report_of("a", first.port), report_of("b", second.port))
        reply = front.post("/v1/chat/completions", ASKED)
        assert (reply.status_code, reply.json()) == (200, {"ok": 1})
        assert [len(first.requests), len(second.requests)] == [1, 1]
    assert counts_of(front) == {"passed": 1, "repeated": 1, "broken": 0, "refused": 0}


def test_a_second_death_is_told_in_the_protocols_words(front: RunningGateway):
    for path, kind in (
        ("/v1/chat/completions", "server_error"),
        ("/v1/messages", "overloaded_error"),
    ):
        sockets = [Socket(dies) for _ in range(3)]
        front.tell(*(report_of(f"{path}{n}", each.port) for n, each in enumerate(sockets)))
        reply = front.post(path, ASKED)
        assert reply.status_code == 503 and reply.json()["error"]["type"] == kind
        assert sum(len(each.requests) for each in sockets) == 2
        for each in sockets:
            each.close()


def test_an_unreachable_replica_costs_nothing_and_comes_back_with_a_later_report(
    front: RunningGateway,
):
    closed = Socket()
    closed.close()
    with closing(Socket(answers(b"{}"), answers(b"{}"))) as second:
        front.tell(report_of("a", closed.port, beat=5), report_of("b", second.port))
        assert front.post("/v1/chat/completions", ASKED).status_code == 200
        assert counts_of(front)["repeated"] == 0
        for beat, serves in ((6, False), (7, True)):
            others = report_of("b", second.port, beat=beat)
            front.tell(report_of("a", closed.port, beat=beat), others)
            shown = front.get("/replicas").json()["replicas"]
            assert [each["serves"] for each in shown] == [serves, True]


CHAT = b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n'
CREATED = (
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0,'
    b'"response":{"id":"resp_1","status":"in_progress","output":[]}}\n\n'
)
DELTA = b'event: response.output_text.delta\ndata: {"sequence_number":7,"delta":"x"}\n\n'


def ended(front: RunningGateway, path: str, *pieces: bytes) -> str:
    """What a client reads of a stream that breaks off behind these pieces."""
    with closing(Socket(breaks_off(*pieces))) as replica:
        front.tell(report_of(path + str(pieces), replica.port))
        reply = front.post(path, {**ASKED, "stream": True})
        assert reply.status_code == 200
        assert len(replica.requests) == 1
        return reply.text


def test_a_broken_stream_ends_with_the_error_event_of_its_protocol(front: RunningGateway):
    said = ended(front, "/v1/chat/completions", CHAT, CHAT[:20])
    first, error, done = said.strip().split("\n\n")
    assert first.encode() + b"\n\n" == CHAT and done == "data: [DONE]"
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "unavailable"

    said = ended(front, "/v1/messages", b'event: message_start\ndata: {"type":"message_start"}\n\n')
    assert '\n\nevent: error\ndata: {"type":"error","error":{"type":"overloaded_error"' in said

    said = ended(front, "/v1/responses", CREATED, b": keep-alive\n\n", DELTA + b"event: half")
    name, data = said.strip().split("\n\n")[-1].split("\n")
    failed = json.loads(data.removeprefix("data: "))
    assert name == "event: response.failed" and "half" not in said
    assert failed["sequence_number"] == 8 and failed["response"]["id"] == "resp_1"
    assert failed["response"]["status"] == "failed" and failed["response"]["error"]["message"]
    assert counts_of(front)["broken"] == 3


def test_a_stream_that_dies_before_its_head_is_begun_elsewhere(front: RunningGateway):
    with closing(Socket(dies)) as first, closing(Socket(breaks_off(CHAT))) as second:
        front.tell(report_of("a", first.port), report_of("b", second.port))
        reply = front.post("/v1/chat/completions", {**ASKED, "stream": True})
        assert reply.text.startswith(CHAT.decode().strip())
        assert len(second.requests) == 1


def test_full_and_ending_replicas_send_requests_on(front: RunningGateway):
    full = answers(b'{"error":{"code":"server_overloaded"}}', "429 Too Many Requests")
    late = answers(b'{"error":{"code":"unavailable"}}', "503 Service Unavailable")
    with (
        closing(Socket(full)) as first,
        closing(Socket(late, late)) as second,
        closing(Socket(answers(b'{"ok":1}'))) as third,
    ):
        named = zip("abc", (first, second, third), strict=True)
        front.tell(*(report_of(name, each.port) for name, each in named))
        assert front.post("/v1/chat/completions", ASKED).json() == {"ok": 1}
        # Whether it serves at all was asked of its health.
        assert b"GET /health" in second.requests[1]


def test_when_all_are_full_the_client_hears_so_and_queue_times_are_passed_on(
    front: RunningGateway,
):
    full = answers(b'{"error":{"code":"server_overloaded"}}', "429 Too Many Requests")
    with closing(Socket(full)) as first, closing(Socket(full)) as second:
        front.tell(report_of("a", first.port), report_of("b", second.port))
        assert front.post("/v1/chat/completions", ASKED).status_code == 429
    slow = answers(b'{"error":{"code":"request_queue_timeout"}}', "503 Service Unavailable")
    with closing(Socket(slow, answers(b"{}"))) as first, closing(Socket()) as second:
        front.tell(report_of("c", first.port), report_of("d", second.port))
        reply = front.post("/v1/chat/completions", ASKED)
        assert reply.json()["error"]["code"] == "request_queue_timeout"
        assert second.requests == []


def test_targets_are_passed_on_as_written_and_are_paths(front: RunningGateway):
    with closing(Socket(answers(b"{}"))) as replica:
        front.tell(report_of("a", replica.port))
        assert front.get("/v1/a%3Fb%2F/c%20d?e=%26&f").status_code == 200
        assert replica.requests[0].startswith(b"GET /v1/a%3Fb%2F/c%20d?e=%26&f HTTP/1.1\r\n")
        for target in (b"@127.0.0.1:1/v1", b"x/v1"):
            lines = b"GET " + target + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            assert raw(front.port, lines, seconds=60).startswith(b"HTTP/1.1 400")
        assert len(replica.requests) == 1


def test_without_replicas_requests_wait_and_health_says_so():
    with gateway(wait=0.2) as front:
        assert front.get("/health").status_code == 503
        reply = front.post("/v1/chat/completions", ASKED)
        assert reply.status_code == 503 and "no replica" in reply.json()["error"]["message"]


def test_keys_and_their_limits_hold_for_all_replicas_and_stay_at_the_gateway(tmp_path: Path):
    file = tmp_path / "keys"
    file.write_text("one requests_per_minute=2\ntwo\n")
    acts = [answers(b"{}")] * 3
    with (
        gateway(LEAST, api_key_file=file) as front,
        closing(Socket(*acts)) as first,
        closing(Socket(*acts)) as second,
    ):
        front.tell(report_of("a", first.port), report_of("b", second.port))
        one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
        statuses = [front.post("/v1/messages", ASKED, headers=one).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert front.post("/v1/messages", ASKED).status_code == 401
        assert front.get("/replicas").status_code == 401
        assert front.post("/v1/messages", ASKED, headers=two).status_code == 200
        heads = [text.lower() for text in first.requests + second.requests]
        assert all(f"bearer {SECRET}".encode() in head for head in heads)
        assert sorted(head.count(b"x-ninfer-owner: 2") for head in heads) == [0, 0, 1]


def test_a_replica_takes_nobody_but_its_gateway():
    keys = GatewayKeys(SECRET)
    found = keys.find(gateway_headers(SECRET, 3))
    assert found is not None and found.number == 3
    for headers in (
        {},
        gateway_headers("other", 3),
        {"x-api-key": SECRET},
        {**gateway_headers(SECRET, 1), "x-ninfer-owner": "-1"},
        {**gateway_headers(SECRET, 1), "x-ninfer-owner": "1" * 9},
    ):
        assert keys.find(headers) is None


def replicas_of(server: ClusterServer) -> dict[str, Any]:
    shown = server.get("/metrics").text.splitlines()
    return {
        line.split('"')[1]: float(line.rpartition(" ")[2])
        for line in shown
        if line.startswith("ninfer_generation_tokens_total{")
    }


def test_one_page_of_metrics_has_every_family_once_and_every_replica(server: ClusterServer):
    server.post("/v1/chat/completions", ASKED)
    page = server.get("/metrics").text
    kinds = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds)) > 30
    assert set(replicas_of(server)) == {"r0", "r1"}
    assert 'ninfer_model_info{replica="r0",device="cpu"' in page
    assert 'ninfer_cluster_replicas{serves="yes"} 2.0' in page


def test_a_conversation_stays_and_new_ones_are_spread(server: ClusterServer):
    def turn(messages: list[Any]) -> dict[str, Any]:
        body = {"messages": messages, "max_tokens": 4, "temperature": 0}
        return server.post("/v1/chat/completions", body).json()

    lead = {"role": "system", "content": "Be kind. " * 30}
    used = []
    for name in ("ann", "bob", "cat", "dan"):
        messages: list[Any] = [lead, {"role": "user", "content": f"I am {name}. " * 20}]
        before = replicas_of(server)
        for _ in range(3):
            reply = turn(messages)
            messages += [reply["choices"][0]["message"], {"role": "user", "content": "and?"}]
        after = replicas_of(server)
        moved = [replica for replica in after if after[replica] > before[replica]]
        assert len(moved) == 1
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        used += moved
    assert sorted(used) == ["r0", "r0", "r1", "r1"]


def test_stored_responses_are_found_by_any_replica(server: ClusterServer):
    body = {"input": "soup?", "max_output_tokens": 4}
    made = server.post("/v1/responses", body).json()
    for replica in server.replicas:
        headers = gateway_headers(SECRET, 0)
        found = httpx.get(f"{replica.url}/v1/responses/{made['id']}", headers=headers, timeout=60)
        assert found.json()["output"] == made["output"]
        other = httpx.get(
            f"{replica.url}/v1/responses/{made['id']}",
            headers=gateway_headers(SECRET, 1),
            timeout=60,
        )
        assert other.status_code == 404
    following = {**body, "previous_response_id": made["id"]}
    assert server.post("/v1/responses", following).json()["previous_response_id"] == made["id"]


def test_a_servers_costs_are_measured_and_others_are_refused(server: ClusterServer):
    options = MeasureOptions(api_key=SECRET, prompt_tokens=64, answer_tokens=8, rounds=1)
    costs = asyncio.run(measure(server.replicas[0].url, options))
    assert costs.places == 4 and costs.kv_tokens == server.service.facts.kv_tokens
    assert costs.prefill(64) > 0 and costs.step(4) > 0
    server.settled()
    with pytest.raises(UsageError, match=r"401|ninfer metrics"):
        asyncio.run(measure(server.replicas[0].url, MeasureOptions(api_key="wrong")))


def test_a_client_that_leaves_ends_its_request_at_the_replica(server: ClusterServer):
    body = json.dumps({**ASKED, "max_tokens": 900, "ignore_eos": True, "stream": True}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
        assert connection.recv(12) == b"HTTP/1.1 200"
    # Ended well before its 900 tokens: it is not settled otherwise within that time.
    server.settled(60)
    page = server.get("/metrics").text
    assert page.count('outcome="cancelled"') == 1
