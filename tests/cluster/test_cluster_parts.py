"""Parts of a cluster by themselves: digests of beginnings, the store, the directory, how many."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ninfer.cli.main import main
from ninfer.cluster.autoscale import policy, replicas_for
from ninfer.cluster.directory import Directory
from ninfer.cluster.options import ClusterOptions
from ninfer.cluster.prefixes import Homes, beginnings, response_digest
from ninfer.cluster.report import ReplicaSpec, Report
from ninfer.cluster.roster import Roster
from ninfer.cluster.store import SharedResponses
from ninfer.cluster.streams import PassedStream
from ninfer.engine.options import EngineOptions
from ninfer.errors import UsageError
from ninfer.server.options import ServerOptions
from ninfer.server.responses.store import Record, new_record

CHAT = "/v1/chat/completions"


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_longer_conversation_begins_as_the_shorter_one_did():
    system = {"role": "system", "content": "Be kind."}
    short = beginnings(CHAT, {"messages": [system, user("a")]})
    turns = [system, user("a"), {"role": "assistant", "content": "b"}, user("c")]
    long = beginnings("/chat/completions", {"messages": turns, "temperature": 1})
    assert len(short) == 1 and long[:1] == short and len(set(long)) == 3
    # What agents share is no beginning by itself, but part of all of them.
    assert beginnings(CHAT, {"messages": [system]}) == []
    assert beginnings(CHAT, {"messages": [user("a")]}) != short
    assert beginnings(CHAT, {"messages": [system, user("a")], "tools": [1]}) != short


def test_markers_that_move_are_no_part_of_it():
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    plain = {"type": "text", "text": "a"}
    with_marker = beginnings("/v1/messages", {"system": [marked], "messages": [user([marked])]})
    assert with_marker == beginnings(
        "/v1/messages", {"system": [plain], "messages": [user([plain])]}
    )


def test_responses_and_raw_prompts_have_beginnings_too():
    body = {"input": "hi", "previous_response_id": "resp_1"}
    assert beginnings("/v1/responses", body) == [response_digest("resp_1")]
    first = beginnings("/v1/responses", {"input": [user("a")], "instructions": "x"})
    assert beginnings("/v1/responses", {"input": [user("a"), user("b")], "instructions": "x"})[
        :1
    ] == (first)
    text = "".join(chr(97 + n % 23) for n in range(3000))
    short, long = (beginnings("/v1/completions", {"prompt": text[:n]}) for n in (2048, 3000))
    assert len(short) == 2 and long[:2] == short
    ids = list(range(600))
    assert beginnings("/v1/completions", {"prompt": [ids, [1]]}) == beginnings(
        "/v1/completions", {"prompt": ids}
    )
    for broken in (5, {}, [], [[]], None):
        assert beginnings("/v1/completions", {"prompt": broken}) == []
    assert beginnings(CHAT, {"messages": "x"}) != [] and beginnings(CHAT, {}) == []


def test_the_longest_known_beginning_wins_among_those_that_are_there():
    homes = Homes(most=3)
    homes.note([b"1", b"2"], "a")
    homes.note([b"2", b"3"], "b")
    assert homes.find([b"1", b"2", b"3", b"4"], ["a", "b"]) == "b"
    assert homes.find([b"1", b"2", b"3"], ["a"]) == "a"
    assert homes.find([b"3"], ["a"]) is None
    homes.note([b"4"], "a")
    assert homes.find([b"1"], ["a", "b"]) is None


def record(number: int, previous: Record | None = None, owner: int = 0, text: str = "t") -> Record:
    output = [{"type": "message", "id": f"msg_{number}", "text": text}]
    response = {"id": f"resp_{number}", "output": output}
    return new_record(owner, response, [{"id": f"in_{number}", "x": "\ud800é"}], previous)


def test_what_one_replica_stores_another_finds_for_the_same_key_only(tmp_path: Path):
    one, two = (SharedResponses(tmp_path / "r.sqlite", 8, 1 << 20) for _ in range(2))
    first = record(1, owner=3)
    one.put(first)
    two.put(record(2, previous=two.get(3, "resp_1"), owner=3))
    assert two.get(3, "resp_1") == first
    assert [item["id"] for item in one.get(3, "resp_2").items] == [
        "in_1", "msg_1", "in_2", "msg_2",
    ]  # fmt: skip
    assert two.get(4, "resp_1") is None and one.item(4, "msg_1") is None
    assert two.item(3, "msg_1") == first.response["output"][0]
    assert not two.delete(4, "resp_1") and two.delete(3, "resp_1")
    assert one.get(3, "resp_1") is None and one.item(3, "msg_1") is None
    assert not one.delete(3, "resp_1")
    one.close(), two.close()


def test_the_oldest_responses_make_room_and_too_large_ones_are_not_kept(tmp_path: Path):
    store = SharedResponses(tmp_path / "r.sqlite", 3, 1 << 20)
    for number in range(5):
        store.put(record(number))
    assert [store.get(0, f"resp_{n}") is not None for n in range(5)] == [False] * 2 + [True] * 3
    assert store.item(0, "msg_0") is None and store.item(0, "msg_4") is not None
    store.close()
    small = SharedResponses(tmp_path / "s.sqlite", 3, 150)
    small.put(record(1, text="".join(chr(33 + (n * n) % 89) for n in range(3000))))
    assert small.get(0, "resp_1") is None
    small.close()
    with pytest.raises(UsageError, match="--response-store"):
        SharedResponses(tmp_path / "no" / "r.sqlite", 3, 150)


def test_the_directory_drops_the_silent_and_those_that_leave():
    now = [0.0]
    spec = ReplicaSpec(
        ClusterOptions(), ServerOptions(), EngineOptions(artifact=Path("x")), "s", None, True, 0
    )
    directory = Directory(spec, lambda: now[0])
    for name in "ab":
        directory.report(Report(name, "http://x", "x", 1, 1, True))
    now[0] = 100.0
    directory.report(Report("b", "http://x", "x", 1, 2, True))
    now[0] = 130.0
    assert [report.replica for report in directory.reports()] == ["b"]
    directory.leave("b")
    assert directory.reports() == [] and directory.spec() is spec


def test_a_silent_replica_is_left_out_unless_all_are_silent():
    now = [100.0]
    roster = Roster("affinity", wait=1, clock=lambda: now[0])

    def told(*beats: int) -> list[str]:
        roster.update(
            Report(name, "http://x", "x", 1, beat, True)
            for name, beat in zip("ab", beats, strict=True)
        )
        return [member.report.replica for member in roster.usable]

    assert told(1, 1) == ["a", "b"]
    now[0] += 4
    assert told(1, 2) == ["a", "b"]
    now[0] += 4
    assert told(1, 3) == ["b"]
    assert [each["serves"] for each in roster.state()] == [False, True]
    now[0] += 60
    assert told(1, 3) == ["a", "b"]


def test_replicas_follow_the_queue_and_starved_caches():
    assert replicas_for(2, [0, 0], [4, 4], [0, 0]) == 1
    assert replicas_for(1, [7], [4], [0]) == 3
    assert replicas_for(2, [3, 3], [4, 4], [0, 0]) == 2
    assert replicas_for(2, [1, 1], [4, 4], [0, 1]) == 3
    assert replicas_for(2, [], [], []) == 2

    metrics = {"requests": {"a": 7.0}, "places": {"a": 4.0}, "starved": {"a": 0.0}}
    assert policy(SimpleNamespace(target_num_replicas=1, aggregated_metrics=metrics)) == (3, {})
    assert policy(SimpleNamespace(target_num_replicas=1, aggregated_metrics={})) == (1, {})


def test_a_stream_in_odd_pieces_is_passed_on_in_whole_events():
    stream = PassedStream(CHAT, "r")
    whole = b'data: {"a":1}\n\n: keep-alive\n\ndata: [DONE]\n\n'
    out = [stream.pass_on(whole[n : n + 3]) for n in range(0, len(whole), 3)]
    assert b"".join(out) + stream.rest() == whole
    assert all(not piece or piece.endswith(b"\n\n") for piece in out)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--replicas", "0"], "--replicas 0: must be 1 or more"),
        (["--cpus", "0"], "--cpus 0.0: must be above 0"),
        (["--max-replicas", "1", "--min-replicas", "2"], "--max-replicas 1: is below"),
        (["--routing", "best"], "--routing"),
        (["--response-store", "postgresql://x:secret@y/z"], "--response-store postgresql://...:"),
        (["--restart"], "unrecognized arguments: --restart"),
    ],
)
def test_wrong_options_are_refused_before_ray_is_asked(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["cluster", "serve", "tiny", *given]) == 2
    error = capsys.readouterr().err
    assert words in error and "secret" not in error
