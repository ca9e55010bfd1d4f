"""`ninfer chat` as a person uses it: turns, commands, Ctrl-C, failures; server and artifact."""

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ninfer.cli import main
from tests.client.scripted import USAGE, ScriptedRequest, ScriptedServer, delta, finish

Start = Callable[[Callable[[ScriptedRequest], None]], ScriptedServer]
ROOT = Path(__file__).parents[2]


def chat(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lines: str,
    *arguments: object,
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    status = main(["chat", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def echo(request: ScriptedRequest) -> None:
    """Thinks, then says how many messages it got and what the last one was."""
    if request.command == "GET":
        request.reply({"data": [{"id": "m"}]})
        return
    messages = request.body["messages"]
    said = f"{len(messages)}: {json.dumps(messages[-1]['content'])[:60]}"
    request.stream(
        delta(reasoning_content="let me see"), delta(content=said), finish(), USAGE, "[DONE]"
    )


def test_turns_build_on_each_other(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    scripted_server: Start,
    tmp_path: Path,
) -> None:
    server = scripted_server(echo)
    monkeypatch.setenv("NINFER_API_KEY", "k3y")
    saved = tmp_path / "talk.json"
    lines = f"hello\nmore \\\nlines\n\n/nope\n/save {saved}\n/reset\nlast"
    status, out, err = chat(
        capsys, monkeypatch, lines, server.root, "--system", "be kind", "--temperature", "0.5"
    )
    assert status == 0
    assert out == '2: "hello"\n4: "more \\nlines"\n2: "last"\n'
    assert err.count("let me see\n") == 3 and "/nope: unknown" in err
    assert "finish: stop; tokens: 12 prompt (8 cached), 7 generated (3 reasoning)" in err
    assert "tok/s" not in out + err and "k3y" not in out + err
    messages = json.loads(saved.read_text())["messages"]
    assert [message["role"] for message in messages] == ["system"] + ["user", "assistant"] * 2
    assert messages[2]["reasoning_content"] == "let me see"
    posts = [body for method, *_, body in server.seen if method == "POST"]
    assert all(body["model"] == "m" and body["temperature"] == 0.5 for body in posts)
    assert all(headers["Authorization"] == "Bearer k3y" for _, _, headers, _ in server.seen)


def test_a_failed_turn_is_told_and_forgotten(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scripted_server: Start
) -> None:
    def script(request: ScriptedRequest) -> None:
        last = request.body["messages"][-1]["content"] if request.body else ""
        if last == "refuse":
            request.reply({"error": {"message": "queue is full"}}, 429)
        elif last == "break":
            request.stream(delta(content="half"))
        else:
            echo(request)

    server = scripted_server(script)
    status, out, err = chat(capsys, monkeypatch, "refuse\nbreak\nok\n", server.root)
    assert status == 0
    assert f"{server.root}: 429 queue is full; your question is not part of the conv" in err
    assert "the connection ended before the answer did" in err
    # What was half said stays in the conversation, as people saw it.
    assert out == 'half\n3: "ok"\n'


def test_an_image_that_was_refused_can_be_dropped(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    scripted_server: Start,
    tmp_path: Path,
) -> None:
    def script(request: ScriptedRequest) -> None:
        if request.body and not isinstance(request.body["messages"][-1]["content"], str):
            request.reply({"error": {"message": "no vision"}}, 400)
        else:
            echo(request)

    file = tmp_path / "x.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n")
    server = scripted_server(script)
    _, out, err = chat(capsys, monkeypatch, f"/image {file}\nq\nq\n/image\nq\n", server.root)
    assert err.count("no vision") == 2 and "wait for the next one (/image drops them)" in err
    assert out == '1: "q"\n'


def test_terminal_commands_in_an_answer_reach_a_file_but_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scripted_server: Start
) -> None:
    def script(request: ScriptedRequest) -> None:
        if request.command == "GET":
            echo(request)
        else:
            request.stream(delta(content="a\x1b[2Jb\x9b"), finish(), "[DONE]")

    server = scripted_server(script)
    _, out, _ = chat(capsys, monkeypatch, "q\n", server.root)
    assert out == "a\x1b[2Jb\x9b\n"
    with Terminal("chat", server.root) as terminal:
        terminal.wait("> ")
        terminal.type("q\n")
        assert "a\u241b[2Jb\u2421" in terminal.wait("finish: stop")


def test_a_server_that_is_away_ends_the_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    status, out, err = chat(capsys, monkeypatch, "q\n", f"127.0.0.1:{port}")
    assert status == 1 and out == "" and "no server answers" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://h:1", "--device", "cpu"), "--device: is for an artifact; the engine at http"),
        (("http://h:1", "--temperature", "3"), "--temperature 3.0: must be 0..2"),
        (("{artifact}", "--model", "m"), "--model m: is for a server"),
        (("nowhere.ninfer",), "nowhere.ninfer"),
    ],
)
def test_bad_arguments_are_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    micro_artifacts: dict[str, Path],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    filled = [a.format(artifact=micro_artifacts["dense"]) for a in arguments]
    status, _, err = chat(capsys, monkeypatch, "", *filled)
    assert status in (1, 2) and message in err


class Terminal:
    """`ninfer` in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._controller, side = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
        environment.pop("NO_COLOR", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ninfer", *arguments],
            stdin=side,
            stdout=side,
            stderr=side,
            env=environment,
            start_new_session=True,
        )
        os.close(side)
        self._seen = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._controller)

    def wait(self, pattern: str, seconds: float = 60.0) -> str:
        """All output up to a match, which later calls do not see again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(re.escape(pattern), self._seen)
            if found:
                seen, self._seen = self._seen[: found.end()], self._seen[found.end() :]
                return seen
            if select.select([self._controller], [], [], 0.2)[0]:
                self._seen += os.read(self._controller, 65536).decode("utf-8", "replace")
        raise AssertionError(f"{pattern!r} did not come; seen: {self._seen!r}")

    def wait_for_more(self, seconds: float = 60.0) -> None:
        """Wait for any output that has not been seen yet."""
        if not self._seen:
            assert select.select([self._controller], [], [], seconds)[0], "nothing came"

    def settle(self) -> None:
        """Wait until the program has answered all signals and waits for input."""
        quiet = 0
        # Many short silences: one long one is also what a machine that stops for a while gives.
        while quiet < 20:
            quiet += 1
            if select.select([self._controller], [], [], 0.05)[0]:
                self._seen += os.read(self._controller, 65536).decode("utf-8", "replace")
                quiet = 0

    def type(self, text: str) -> None:
        os.write(self._controller, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def interrupt_until(self, pattern: str) -> None:
        """Ctrl-C at the prompt: readline misses one that comes just before it waits for a key."""
        for _ in range(100):
            self.interrupt()
            with contextlib.suppress(AssertionError):
                self.wait(pattern, 0.6)
                return
        raise AssertionError(f"{pattern!r} did not come")

    def leave(self) -> int:
        """Ctrl-D at the prompt, which has to be there: before, the terminal would take it."""
        self.wait("> ")
        self.type("\x04")
        return self._process.wait(120)


def test_control_c_ends_the_answer_and_not_the_program(scripted_server: Start) -> None:
    def script(request: ScriptedRequest) -> None:
        if request.command == "GET" or request.body["messages"][-1]["content"] != "slow":
            echo(request)
            return
        request.begin_stream()
        for number in range(6000):  # minutes, however slow the terminal is
            request.send(delta(content=f"word{number} "))
            time.sleep(0.05)

    server = scripted_server(script)
    with Terminal("chat", server.root) as terminal:
        terminal.wait("> ")
        terminal.interrupt_until("Ctrl-D or /quit leaves")
        terminal.settle()
        terminal.type("slow\n")
        terminal.wait("word3")
        for _ in range(3):  # people press it more than once
            terminal.interrupt()
        terminal.wait("cancelled")
        assert server.left.wait(60), "the server was not told"
        terminal.settle()
        terminal.type(" next\n")
        shown = terminal.wait("finish: stop")
        assert '3: "next"' in shown  # slow, its half answer, next
        assert "\x1b[2mlet me see\x1b[0m" in shown
        assert terminal.leave() == 0


@pytest.fixture
def dense(micro_artifacts: dict[str, Path]) -> Path:
    return micro_artifacts["dense"]


ENGINE = ("--device", "cpu", "--max-context", "512")


def test_an_artifact_answers_in_this_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, dense: Path
) -> None:
    status, out, err = chat(
        capsys,
        monkeypatch,
        "hi\nand now?\n",
        dense,
        *ENGINE,
        "--no-thinking",
        "--max-new",
        12,
        "--temperature",
        0,
    )
    assert status == 0 and len(out.splitlines()) >= 2
    counts = [int(n) for n in re.findall(r"tokens: (\d+) prompt", err)]
    assert len(counts) == 2 and counts[1] > counts[0] + 12
    assert err.count("12 generated (0 reasoning)") == 2


def test_control_c_in_this_process_leaves_the_engine_well(dense: Path) -> None:
    arguments = ("--no-thinking", "--max-new", "400", *ENGINE)
    with Terminal("chat", str(dense), *arguments) as terminal:
        terminal.wait("> ", 120)
        terminal.type("hi\n")
        terminal.wait("hi\r\n")  # the echo of the question
        terminal.wait_for_more()
        terminal.interrupt()
        terminal.wait("cancelled")
        terminal.wait("> ")
        terminal.type("/reset\n")
        terminal.wait("> ")
        terminal.type("hi\n")
        terminal.wait("finish: ", 120)
        assert terminal.leave() == 0
