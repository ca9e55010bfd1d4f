"""`ninfer serve` as people start it: published command lines, signals, log, restart."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ninfer.cli.serve import build_parser, engine_of
from ninfer.engine.options import EngineOptions
from ninfer.errors import UnsupportedError, UsageError
from ninfer.server.keys import read_keys
from ninfer.server.options import ServedEngineOptions, ServerOptions, check_server

FIRST = (
    "--host 127.0.0.1 --port 8080 --api-key K --max-context 32768 --kv-capacity auto --kv-dtype "
    "int8 --max-concurrency 8 --spec mtp --draft-tokens 3 --lm-head-draft --no-thinking"
)
SECOND = (
    "--host 127.0.0.1 --port 8080 --api-key K --kv-dtype int8 --spec mtp --draft-tokens 3 "
    "--lm-head-draft --no-thinking --model-id qwen3.8-27b --max-context 65536 --kv-capacity 65536 "
    "--max-concurrency 4 --max-pending-requests 32 --prefill-chunk 1024 --default-max-tokens 8192 "
    "--cors --temperature 0.6 --top-p 0.95"
)


@contextmanager
def started(
    artifact: Path, *arguments: str, key: str = "", script: str = "serve"
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server process, ready, and its URL; killed if it does not end."""
    command = [sys.executable, "-m", "ninfer", script, str(artifact), "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment |= {"NINFER_API_KEY": key} if key else {}
    process = subprocess.Popen(
        [*command, *arguments], stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        lines = []
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if " at http://" in line:
                break
        assert lines and " at http://" in lines[-1], "".join(lines)
        url = lines[-1].split()[-1]
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                httpx.get(f"{url}/health", timeout=60)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        process.first_lines = lines  # for the test that reads them
        yield process, url
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize("line", [FIRST, SECOND], ids=["first", "second"])
def test_the_published_command_lines(micro_artifacts: dict[str, Path], line: str) -> None:
    """Verbatim but for the port, which another program may have."""
    words = line.replace("--port 8080", "--port 0").split()
    with started(micro_artifacts["dense"], *words) as (process, url):
        notice = "".join(process.first_lines)
        assert "NINFER_API_KEY" in notice and "--api-key-file" in notice
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        path = f"{url}/v1/chat/completions"
        assert httpx.post(path, json=body, timeout=60).status_code == 401
        reply = httpx.post(path, json=body, headers={"x-api-key": "K"}, timeout=60)
        message = reply.json()["choices"][0]["message"]
        assert reply.status_code == 200 and "reasoning_content" not in message
        if "--model-id" in line:
            assert reply.json()["model"] == "qwen3.8-27b"
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


def test_an_answer_under_way_is_finished_after_sigterm(
    micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    log = tmp_path / "requests.jsonl"
    arguments = ("--port", "0", "--request-log-jsonl", str(log), "--log-stats-interval-ms", "50")
    with started(micro_artifacts["dense"], *arguments, key="secret-k") as (process, url):
        body = {
            "messages": [{"role": "user", "content": "do not log this"}],
            "max_tokens": 120,
            "ignore_eos": True,
            "stream": True,
        }
        with (
            httpx.Client(headers={"authorization": "Bearer secret-k"}, timeout=60) as client,
            client.stream("POST", f"{url}/v1/chat/completions", json=body) as reply,
        ):
            lines = reply.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]" and '"finish_reason":"length"' in rest[-2]
        assert process.wait(120) == 0
    text = log.read_text()
    assert "secret-k" not in text and "do not log" not in text
    events = [json.loads(line) for line in text.splitlines()]
    names = [event["event"] for event in events]
    assert names[0] == "server_start" and events[0]["server"]["api_key_configured"]
    assert [n for n in names if n.startswith("request")] == ["request_start", "request_done"]
    assert "throughput" in names
    done = events[names.index("request_done")]
    assert done["result"]["completion_tokens"] == 120 and done["request"]["stream"]
    assert done["result"]["finish_reason"] == "output_limit"
    assert done["request"]["sampling"]["temperature"] is not None
    assert 0 < done["timings_seconds"]["ttft"] < done["timings_seconds"]["total"]
    instance = {event["server_instance_id"] for event in events}
    assert len(instance) == 1


def test_a_supervised_server_comes_back(micro_artifacts: dict[str, Path]) -> None:
    """J8: a server that dies is started again; SIGTERM ends both."""
    with started(micro_artifacts["dense"], "--restart", "--port", "0") as (process, url):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (first,) = children.read_text().split()
        os.kill(int(first), signal.SIGSEGV)
        lines = []
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if " at http://" in line:
                break
        assert any("starts again in 1 s" in line for line in lines), lines
        url = lines[-1].split()[-1]
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert not children.exists() or not children.read_text().split()


def test_auto_takes_what_fits_and_leaves_what_is_given(
    micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    log = tmp_path / "requests.jsonl"
    arguments = ("--port", "0", "--auto", "--max-context", "512", "--request-log-jsonl", str(log))
    with started(micro_artifacts["dense"], *arguments, "--no-prefix-reuse") as (process, _):
        notice = "".join(process.first_lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "--auto: --max-context 512 --max-concurrency 4 " in notice
    engine = json.loads(log.read_text().splitlines()[0])["engine"]
    assert (engine["max_concurrency"], engine["max_context"]) == (4, 512)
    assert (engine["spec"], engine["vision"], engine["prefix_cache_mib"]) == ("mtp", True, 0)


def options_of(*words: str) -> tuple[ServerOptions, EngineOptions]:
    from ninfer.cli.arguments import collect

    namespace = build_parser().parse_args(["/dev/null", *words])
    server = collect(namespace, ServerOptions)
    engine = collect(namespace, ServedEngineOptions, artifact=namespace.artifact)
    return server, engine_of(engine, server)


def test_defaults_are_those_of_a_server() -> None:
    server, engine = options_of()
    assert (engine.max_context, server.port, server.host) == (8192, 8080, "127.0.0.1")
    assert (server.default_max_tokens, server.max_request_mib) == (8192, 384)
    assert (engine.max_pending_requests, engine.pending_timeout_ms) == (16, 30000)
    check_server(server, engine)


def test_other_names_of_engine_options() -> None:
    assert options_of("--no-prefix-reuse")[1].prefix_cache_mib == 0
    assert options_of("--host-context-mib", "7")[1].prefix_host_mib == 7
    with pytest.raises(UsageError, match="contradicts --prefix-host-mib 3"):
        options_of("--host-context-mib", "7", "--prefix-host-mib", "3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--port 70000", "--port 70000"),
        ("--default-max-tokens 0", "--default-max-tokens 0"),
        ("--temperature 3", "--temperature 3"),
        ("--keep-alive-ms 0", "--keep-alive-ms 0"),
        ("--device-state-slots 3 --max-concurrency 2", "give 2, or leave it out"),
        ("--context-cost-presets costs.json", "costs.json: measured costs choose nothing"),
        ("--request-log-jsonl /dev/null", "is the artifact"),
        ("--jev", "--jev: not available"),
        ("--device-state-slots 4", "give 1, or leave it out"),
        ("--max-concurrency 65", "--max-concurrency 65"),
    ],
)
def test_options_that_cannot_be(words: str, message: str) -> None:
    with pytest.raises((UsageError, UnsupportedError), match=message):
        check_server(*options_of(*words.split()))


def test_state_slots_are_those_of_the_sequences() -> None:
    check_server(*options_of("--device-state-slots", "2", "--max-concurrency", "2"))
    check_server(*options_of("--device-state-slots", "1"))


def test_files_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for text, message in (
        ("", "holds no key"),
        ("# only this\n", "holds no key"),
        ("k often=3\n", "line 1: 'often=3' is no limit"),
        ("k concurrent=0\n", "concurrent=0"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=message) as found:
            read_keys((), file)
        assert "'k'" not in str(found.value)
    with pytest.raises(UsageError, match="No such file"):
        read_keys((), tmp_path / "none")


def test_a_taken_port_is_known_before_the_model_is_read(
    micro_artifacts: dict[str, Path],
) -> None:
    with started(micro_artifacts["dense"], "--port", "0") as (_, url):
        port = url.rpartition(":")[2]
        command = [sys.executable, "-m", "ninfer", "serve", str(micro_artifacts["dense"])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        second = subprocess.run(
            [*command, "--port", port], capture_output=True, text=True, env=environment
        )
    assert second.returncode == 2 and f"--port {port}: Address already in use" in second.stderr
    assert "backend" not in second.stderr
