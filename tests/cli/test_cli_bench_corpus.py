"""`ninfer bench corpus` of an artifact and of servers: stored, resumed, judged, with drafts."""

import json
from pathlib import Path
from typing import Any

import pytest

from ninfer.audit import read_responses
from ninfer.bench.corpus.fixtures import load_fixtures
from ninfer.bench.corpus.plan import Ask
from ninfer.bench.corpus.server_partner import ServerPartner, listed_models
from ninfer.cli.main import main
from ninfer.client import ChatServer
from ninfer.errors import ServerError, UsageError
from tests.server.serving import serving

SMALL = ["--set", "tiny", "--fixture", "copy", "--seed", "1", "--seed", "2", "--max-new", "12"]


def corpus(*arguments: object) -> int:
    return main(["bench", "corpus", *map(str, arguments)])


def test_an_artifact_in_several_modes(
    micro_artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out.jsonl", tmp_path / "out.html"
    modes = ["--mode", "plain,mtp3", "--sampling", "greedy,stochastic"]
    target = [micro_artifacts["dense"], *SMALL, "-o", out]
    assert corpus(*target, "--mode", "plain", "--sampling", "greedy") == 0
    before = out.read_bytes()
    assert len(read_responses(out)) == 2
    assert corpus(*target, *modes, "--html", page) == 0
    assert out.read_bytes().startswith(before)
    found = read_responses(out)
    assert len(found) == 8 and len({response.key for response in found}) == 8
    by_key = {response.key: response for response in found}
    for response in found:
        plain = by_key[(*response.key[:-1], "plain")]
        assert response.token_ids == plain.token_ids and response.error is None
        assert (response.drafts is None) == (response.mode == "plain")
        assert response.usage.completion == 12 and response.decode_rate
        assert response.origin.hardware and response.origin.model.startswith("dense.ninfer sha256:")
        assert response.contract and response.pieces[-1][1] == len(response.text)
    drafted = by_key["tiny_copy", "", 1, "greedy", "mtp3"].drafts
    assert drafted is not None and drafted.drafted >= drafted.rounds > 0
    text = capsys.readouterr().out
    assert "mtp3 : plain" in text and "0 of 8 responses are usable" in text
    assert page.stat().st_size < 2 << 20
    # The stored command asks the same again.
    words = by_key["tiny_copy", "", 2, "stochastic", "mtp3"].command.split()[1:]
    words[words.index("again.jsonl")] = str(tmp_path / "again.jsonl")
    assert main(words) == 0
    (again,) = read_responses(tmp_path / "again.jsonl")
    assert again.token_ids == by_key["tiny_copy", "", 2, "stochastic", "mtp3"].token_ids
    assert corpus(*target, "--mode", "plain", "--fail-under", "1") == 1


def test_a_server_is_asked_like_an_artifact(
    micro_artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, served = tmp_path / "own.jsonl", tmp_path / "served.jsonl"
    assert corpus(micro_artifacts["dense"], *SMALL, "-o", own) == 0
    engine = {"spec": "mtp", "draft_tokens": 3, "adaptive_drafts": False, "prefix_cache_mib": 0}
    with serving(micro_artifacts["dense"], engine=engine) as server:
        assert corpus("--server", server.url, *SMALL, "-o", served) == 0
    first, second = read_responses(own), read_responses(served)
    assert [r.text for r in first] == [r.text for r in second]
    assert [r.token_ids for r in first] == [r.token_ids for r in second]
    assert {r.mode for r in second} == {"mtp"} and second[0].origin.software == "ninfer"
    assert all(r.timings.decode and r.timings.first and r.usage.completion == 12 for r in second)
    for response in second:
        drafts = response.drafts
        assert drafts is not None and sum(drafts.accepted_at) == drafts.accepted, drafts
    assert main(["bench", "compare", str(own), str(served)]) == 0
    assert "2 pairs, 0 usable twice" in capsys.readouterr().out


def test_a_server_of_the_bare_protocol_gets_the_bare_protocol(scripted_server: Any) -> None:
    bare = scripted_server(_bare)
    with ChatServer(bare.root) as server:
        cards = listed_models(server, named=False)
        partner = ServerPartner(server, cards, model=None, extensions=False, alone=True)
        assert (partner.model, partner.said_mode, partner.context) == ("other", "server", None)
        (fixture,) = load_fixtures("tiny", ["tiny_sum"])
        response = partner.answer(Ask(fixture, "stochastic", 3, 64), "server")
    body = bare.seen[-1][3]
    assert set(body) == {
        *("model", "messages", "max_tokens", "seed", "temperature", "top_p", "presence_penalty"),
        *("stream", "stream_options"),
    }
    assert (response.text, response.reasoning) == ("695", "hm")
    assert response.usage.completion == 4 and response.drafts is None and response.token_ids is None
    assert "--no-extensions" in response.command


def _bare(request: Any) -> None:
    if request.path == "/v1/models":
        request.reply({"data": [{"id": "other"}]})
    elif request.path == "/metrics":
        request.reply({}, 404)
    else:
        request.stream(
            {"choices": [{"delta": {"reasoning_content": "hm"}}]},
            {"choices": [{"delta": {"content": "695"}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}},
            "[DONE]",
        )


def test_what_a_server_tells_besides_is_kept(scripted_server: Any) -> None:
    def script(request: Any) -> None:
        if request.path == "/v1/models":
            request.reply({"data": [{"id": "gguf", "meta": {"n_ctx": 4096}}]})
        elif request.path == "/metrics":
            request.reply({}, 501)
        else:
            timings = {"prompt_ms": 20.0, "predicted_ms": 60.0, "draft_n": 8, "draft_n_accepted": 6}
            end = {"delta": {}, "finish_reason": "stop", "stop_reason": "###"}
            request.stream(
                {"choices": [{"delta": {"content": "69"}, "token_ids": [1, 2]}]},
                {"choices": [{"delta": {"content": "5"}, "token_ids": [3]}]},
                {"choices": [end], "timings": timings},
                "[DONE]",
            )

    llama = scripted_server(script)
    with ChatServer(llama.root) as server:
        cards = listed_models(server, named=False)
        partner = ServerPartner(server, cards, model=None, extensions=True, alone=True)
        (fixture,) = load_fixtures("tiny", ["tiny_sum"])
        response = partner.answer(Ask(fixture, "greedy", 3, 64), "server")
    assert partner.context == 4096
    assert llama.seen[-1][3]["chat_template_kwargs"] == {"enable_thinking": True}
    assert response.stop == "###" and response.token_ids == (1, 2, 3)
    assert response.timings.prefill == 0.02 and response.timings.decode == 0.06
    assert response.drafts is not None and response.drafts.acceptance == 0.75


def test_a_server_without_a_list_of_models_needs_a_name(scripted_server: Any) -> None:
    root = scripted_server(lambda request: request.reply({"error": "no list"}, 500)).root
    with ChatServer(root) as server:
        cards = listed_models(server, named=True)
        partner = ServerPartner(server, cards, model="named", extensions=False, alone=True)
        assert (partner.model, partner.context) == ("named", None)
        with pytest.raises(ServerError, match="500 no list"):
            listed_models(server, named=False)
        with pytest.raises(UsageError, match="lists no model; name one with --model"):
            ServerPartner(server, [], model=None, extensions=False, alone=True)
    locked = scripted_server(lambda request: request.reply({"error": "key"}, 401)).root
    with ChatServer(locked) as server, pytest.raises(ServerError, match="401 key"):
        listed_models(server, named=True)


def test_a_server_that_fails_is_told_and_the_rest_is_kept(
    scripted_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(request: Any) -> None:
        if request.path == "/v1/models":
            request.reply({"data": [{"id": "x"}]})
        else:
            request.reply({"error": {"message": "out of memory"}}, 500)

    out = tmp_path / "out.jsonl"
    broken = scripted_server(script)
    assert corpus("--server", broken.root, *SMALL, "--seed", "3", "--seed", "4", "-o", out) == 2
    assert "out of memory; the same command goes on" in capsys.readouterr().err
    assert len(read_responses(out)) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either an ARTIFACT or --server URL"),
        (["x.ninfer", "--server", "localhost:1"], "give either an ARTIFACT or --server URL"),
        (["x.ninfer"], "--output FILE is missing"),
        (
            ["x.ninfer", "-o", "o", "--concurrency", "2"],
            "artifact answers one request at a time",
        ),
        (["x.ninfer", "-o", "o", "--sampling", "wild"], "--sampling wild: must be of stochastic"),
        (["x.ninfer", "-o", "o", "--mode", "eagle"], "--mode 'eagle'"),
        (["x.ninfer", "-o", "o", "--set", "all"], "--set all: must be one of"),
        (["x.ninfer", "-o", "o", "--max-new", "0"], "--max-new 0: must be positive"),
        (["--server", "localhost:1", "-o", "o", "--max-context", "9"], "the server's own"),
        (["--server", "localhost:1", "-o", "o", "--mode", "a,b"], "a server runs in one mode"),
        (["--server", "localhost:1", "-o", "o", "--seed", "-1"], "--seed -1: must be 0..2^63 - 1"),
        (["--server", "127.0.0.1:9", "-o", "o"], "no server answers"),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert corpus(*arguments) in (1, 2)
    assert message in capsys.readouterr().err


def test_fixtures_that_do_not_fit_are_refused_before(
    micro_artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", tmp_path / "o.jsonl"]
    target = [micro_artifacts["dense"], "--set", "tiny", "--max-context", "64", *out]
    assert corpus(*target) == 2
    assert "--max-context 64: fixture tiny_needle_far may need" in capsys.readouterr().err
    with serving(micro_artifacts["dense"], engine={"max_context": 128}) as server:
        assert corpus("--server", server.url, "--set", "tiny", *out) == 2
    assert "fixture tiny_sum may need 192 tokens, the server has 128" in capsys.readouterr().err


def test_the_list_names_all_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert corpus("--list") == 0
    out = capsys.readouterr().out
    assert "needle_256k" in out and "tiny_copy" in out and "thinking_multimodal_checksum" in out


def test_stored_lines_are_json(micro_artifacts: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert corpus(micro_artifacts["moe"], *SMALL[:6], "--max-new", "4", "-o", out) == 0
    (line,) = out.read_text(encoding="utf-8").splitlines()
    values = json.loads(line)
    assert values["schema"] == 1 and values["request"]["temperature"] == 0.6
    assert values["seed"] == 1 and values["sampling"] == "stochastic"
