"""The four agent programs: how a person runs each, names of their tools, what they report."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.foreign import CLIENTS
from tests.server.scripted_calls import call


@dataclass(frozen=True)
class Report:
    """What a client says of a task: its last words, and the tokens that it has counted."""

    words: str
    read: int
    written: int


@dataclass(frozen=True)
class Agent:
    """One program. `command` begins a session, with `again` it goes on with the last one.

    The other members write a call of its tools, or read what it prints.
    """

    name: str
    command: tuple[str, ...]
    again: tuple[str, ...]
    read_file: Callable[[Path], str]
    write_file: Callable[[Path, str], str]
    see_picture: Callable[[Path], str]
    report: Callable[[Sequence[Any]], Report]

    def program(self, *words: str) -> list[str]:
        """Its command line with these words at the end."""
        return [str(CLIENTS / "node_modules" / ".bin" / self.command[0]), *self.command[1:], *words]


def json_lines(printed: str) -> list[Any]:
    """The objects that a client prints, one or a list of them on a line."""
    found: list[Any] = []
    for line in printed.splitlines():
        if line.startswith(("{", "[")):
            value = json.loads(line)
            found += value if isinstance(value, list) else [value]
    return found


def _claude_report(lines: Sequence[Any]) -> Report:
    (last,) = (line for line in lines if line["type"] == "result")
    usage = last["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"]
    return Report(last["result"], read, usage["output_tokens"])


def _codex_report(lines: Sequence[Any]) -> Report:
    items = [line["item"] for line in lines if line["type"] == "item.completed"]
    words = [item["text"] for item in items if item["type"] == "agent_message"][-1]
    (usage,) = (line["usage"] for line in lines if line["type"] == "turn.completed")
    return Report(words, usage["input_tokens"], usage["output_tokens"])


def _opencode_report(lines: Sequence[Any]) -> Report:
    words = [line["part"]["text"] for line in lines if line["type"] == "text"][-1]
    used = [line["part"]["tokens"] for line in lines if line["type"] == "step_finish"]
    read = sum(tokens["input"] + tokens["cache"]["read"] for tokens in used)
    return Report(words, read, sum(tokens["output"] + tokens["reasoning"] for tokens in used))


# Containers often cannot make the sandbox that it would run commands in.
_UNGUARDED = "dangerously-bypass-approvals-and-sandbox"

AGENTS = (
    Agent(
        "codex",
        ("codex", "exec", "--json", "--skip-git-repo-check", f"--{_UNGUARDED}"),
        ("resume", "--last"),
        lambda path: call("exec_command", cmd=f"cat {path.name}"),
        lambda path, text: call("exec_command", cmd=f"printf '{text}' > {path.name}"),
        lambda path: call("view_image", path=str(path)),
        _codex_report,
    ),
    Agent(
        "claude-code",
        ("claude", "-p", "--output-format=json", "--allowedTools=Read,Bash,Write"),
        ("--continue",),
        lambda path: call("Read", file_path=str(path)),
        lambda path, text: call("Write", file_path=str(path), content=text),
        lambda path: call("Read", file_path=str(path)),
        _claude_report,
    ),
    Agent(
        "opencode",
        ("opencode", "run", "--format=json"),
        ("--continue",),
        lambda path: call("read", filePath=str(path)),
        lambda path, text: call("write", filePath=str(path), content=text),
        lambda path: call("read", filePath=str(path)),
        _opencode_report,
    ),
    Agent(
        "qwen-code",
        ("qwen", "--yolo", "--output-format=json"),
        ("--continue",),
        lambda path: call("read_file", file_path=str(path)),
        lambda path, text: call("write_file", file_path=str(path), content=text),
        lambda path: call("read_file", file_path=str(path)),
        _claude_report,
    ),
)
