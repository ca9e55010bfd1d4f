"""Commands as a person types them: what goes to stdout, what to stderr, and the exit status."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ninfer.cli import main

RUN = ["--max-context", "256", "--device", "cpu", "--greedy"]


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def dense(micro_artifacts: dict[str, Path]) -> Path:
    return micro_artifacts["dense"]


def test_the_answer_alone_is_on_stdout(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    status, out, err = call(
        capsys, "run", dense, "--prompt", "hi", "--no-thinking", "--max-new", 12, *RUN
    )
    assert status == 0
    assert out.strip() and out.endswith("\n")
    assert "finish: output_limit" in err and "12 generated (0 reasoning)" in err
    assert "no answer" not in err
    assert "finish" not in out and "backend" not in out


def test_thinking_is_on_stderr(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    status, out, err = call(capsys, "run", dense, "--prompt", "hi", "--max-new", 12, *RUN)
    assert (status, out) == (0, "")
    assert "12 generated (12 reasoning)" in err
    assert "\nfinish: " in err
    assert "no answer: all 12 tokens were thinking; raise --max-new or use" in err


def test_the_short_form_is_run(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    options = ["--prompt", "hi", "--no-thinking", "--max-new", 8, *RUN]
    long = call(capsys, "run", dense, *options)[1]
    short = call(capsys, dense, *options)[1]
    assert long == short != ""


def test_a_message_file_with_tools(
    capsys: pytest.CaptureFixture[str], dense: Path, tmp_path: Path
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    call_f = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    document = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [call_f]},
            {"role": "tool", "content": "done", "tool_call_id": "1"},
        ],
        "tools": [tool],
    }
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(document))
    options = ["--max-new", 4, "--device", "cpu"]
    status, _, err = call(capsys, "run", dense, "--messages", path, *options)
    assert status == 0
    with_tools = int(err.split("tokens: ")[1].split()[0])
    path.write_text(json.dumps(document["messages"]))
    status, _, err = call(capsys, "run", dense, "--messages", path, *options)
    assert status == 0
    assert int(err.split("tokens: ")[1].split()[0]) < with_tools


def test_token_ids_on_request(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    options = ["--prompt", "hi", "--max-new", 5, *RUN]
    assert "token ids" not in call(capsys, "run", dense, *options)[2]
    err = call(capsys, "run", dense, *options, "--print-token-ids")[2]
    (line,) = [text for text in err.splitlines() if text.startswith("token ids: ")]
    assert len(line.removeprefix("token ids: ").split()) == 5


def test_log_probabilities_on_request(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    options = ["--prompt", "hi", "--max-new", 5, "--greedy", *RUN, "--logit-bias", "65=100"]
    assert "logprob" not in call(capsys, "run", dense, *options)[2]
    err = call(capsys, "run", dense, *options, "--logprobs", 2, "--prompt-logprobs", 0)[2]
    generated = [line for line in err.splitlines() if line.startswith("logprob: ")]
    assert len(generated) == 5
    assert all(re.fullmatch(r"logprob: 65=-\S+; best \d+=-\S+ \d+=-\S+", x) for x in generated)
    prompt = [line for line in err.splitlines() if line.startswith("prompt logprob: ")]
    assert len(prompt) == int(err.split("tokens: ")[1].split()[0]) - 1
    assert not any("best" in line for line in prompt)


def test_log_level(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    options = ["--prompt", "hi", "--max-new", 1, *RUN]
    assert "backend reference on cpu" in call(capsys, "run", dense, *options)[2]
    assert "backend" not in call(capsys, "run", dense, *options, "--log-level", "error")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command given"),
        (["rum"], "'rum' is neither a command"),
        (["rnu"], "did you mean 'run'?"),
        (["--halp"], "unknown option --halp before a command"),
        (["run"], "ARTIFACT"),
        (["run", "a.ninfer", "--promt", "x"], "unrecognized arguments: --promt"),
        (["run", "a.ninfer", "--max-context"], "--max-context: expected one argument"),
        (["run", "a.ninfer", "--max-context", "many"], "--max-context 'many': must be a whole"),
        (["run", "a.ninfer", "--logit-bias", "17"], "--logit-bias '17': must be a token id and a"),
        (["run", "a.ninfer", "--temperature", "warm"], "--temperature 'warm': must be a number"),
        (["run", "a.ninfer"], "exactly one of --prompt TEXT and --messages FILE"),
        (["run", "a.ninfer", "--prompt", "x", "--draft-tokens", "3"], "--draft-tokens and"),
        (
            ["run", "a.ninfer", "--prompt", "x", "--spec", "mtp", "--draft-tokens", "6"],
            "--draft-tokens 6: --spec mtp takes 1..5",
        ),
        (
            ["run", "a.ninfer", "--prompt", "x", "--kv-dtype", "nvfp4"],
            "--kv-dtype nvfp4: not",
        ),
        (
            ["run", "a.ninfer", "--prompt", "x", "--thinking-budget", "-5"],
            "--thinking-budget -5: must not be negative",
        ),
        (["run", "a.ninfer", "--messages", "none.json"], "--messages none.json: No such file"),
        (
            ["run", "a.ninfer", "--prompt", "x", "--raw-output", "--reasoning-stop", "s"],
            "--reasoning-stop has no effect with --raw-output",
        ),
        (["run", "a.ninfer", "--prompt", "x", "--max-new", "0"], "--max-new 0: must be positive"),
        (["run", "a.ninfer", "--prompt", "x", "--device", "9"], "a.ninfer"),
        (["describe", "none.ninfer"], "none.ninfer"),
        (["synth"], "--output FILE is missing"),
        (["synth", "--like", "gpt", "-o", "x"], "--like gpt: must be one of qwen3.6-27b"),
        (["synth", "--scale", "huge", "-o", "x"], "--scale huge: must be one of micro, tiny"),
        (["synth", "--set", "hidden", "-o", "x"], "--set hidden: must be NAME=N"),
        (["synth", "--set", "depth=2", "-o", "x"], "--set depth=2: unknown size"),
        (["synth", "-o", "no/such/folder/x.ninfer"], "no/such/folder/x.ninfer"),
        (["bench", "speed"], "invalid choice: 'speed'"),
    ],
)
def test_a_mistake_is_one_line_and_a_failure(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, *arguments)
    assert status != 0
    assert out == ""
    assert message in err
    assert err.count("\n") == 1 and err.startswith("ninfer: error: ")


@pytest.mark.parametrize(
    "text",
    ["{", '{"tools": []}', "[]", "3", '[{"role": "robot", "content": "x"}]', '[{"role": 1}]'],
)
def test_a_bad_message_file_is_one_line(
    capsys: pytest.CaptureFixture[str], dense: Path, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    status, out, err = call(capsys, "run", dense, "--messages", path, *RUN)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith("ninfer: error: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"role": "user", "content": "x"}', 'the object has no "messages" array'),
        (
            '{"messages": [{"role": "user", "content": "x"}], "tool": []}',
            "member 'tool' is unknown",
        ),
        ('{"messages": [], "messages": []}', "'messages' stands twice"),
        ('[{"role": "user", "content": NaN}]', "NaN is not JSON"),
        ('[{"role": "robot", "content": "x"}]', "messages[0].role is 'robot'"),
        ('\ufeff{"messages": 3}', "messages is 3"),
    ],
)
def test_what_is_wrong_with_a_message_file_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "m.json"
    path.write_text(text, encoding="utf-8")
    status, out, err = call(capsys, "run", "none.ninfer", "--messages", path, *RUN)
    assert (status, out) == (1, "")
    assert err.startswith(f"ninfer: error: --messages {path}: ")
    assert message in err and err.count("\n") == 1


def test_a_prompt_longer_than_the_context(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    status, _, err = call(capsys, "run", dense, "--prompt", "x" * 2000, *RUN)
    assert status == 1
    assert "the context holds 256; shorten it or raise --max-context" in err


def test_help_lists_every_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import fields

    from ninfer.engine.generation_options import GenerationOptions
    from ninfer.engine.options import EngineOptions, RunOptions
    from ninfer.options import flag_of

    with pytest.raises(SystemExit) as left:
        main(["run", "--help"])
    assert left.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for options in (EngineOptions, GenerationOptions, RunOptions):
        for spec in fields(options):
            if "help" in spec.metadata:
                assert flag_of(spec.name, spec.default) in text
                described = text.split(flag_of(spec.name, spec.default) + " ")[-1]
                assert described.index("(default: ") < described.index(")")
    assert "(default: 2048)" in text and "(default: 1024)" in text


def test_the_environment_gives_a_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["run", "a.ninfer", "--prompt", "x"]
    monkeypatch.setenv("NINFER_CUDA_SYNC", "blocking")
    assert "--cuda-sync blocking: not available" in call(capsys, *options)[2]
    monkeypatch.setenv("NINFER_CUDA_SYNC", "slow")
    assert "NINFER_CUDA_SYNC=slow: must be one of spin" in call(capsys, *options)[2]


def test_describe_as_table_and_as_json(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    status, short, _ = call(capsys, "describe", dense)
    assert status == 0
    assert "text/final_norm" not in short
    status, table, _ = call(capsys, "describe", dense, "--objects")
    assert table.startswith(short)
    assert "synthetic/qwen3.6-27b-micro/groupwise-int" in table
    status, text, _ = call(capsys, "describe", dense, "--json")
    document = json.loads(text)
    names = [entry["name"] for entry in document["objects"]]
    assert names[0] == "model/config.json"
    assert document["file_size"] == dense.stat().st_size
    assert all(name in table for name in names)


def test_synth_is_reproducible(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        options = ["--scale", "micro", "--seed", seed, "--set", "num_hidden_layers=8"]
        status, out, _ = call(capsys, "synth", *options, "-o", tmp_path / name)
        assert (status, out) == (0, "")
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    from ninfer.version import VERSION

    assert call(capsys, "--version") == (0, f"{VERSION}\n", "")
    status, out, _ = call(capsys, "--help")
    assert status == 0
    assert "ninfer COMMAND" in out and "describe" in out


def test_a_closed_pipe_is_no_traceback(dense: Path) -> None:
    command = f"{sys.executable} -m ninfer describe {dense} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, cwd=os.getcwd()
    )
    assert done.stdout.startswith("file ")
    assert done.stderr == ""


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, check=False, env={**os.environ, **environment}
    )


NINFER = f"{sys.executable} -m ninfer"


def test_a_closed_or_full_stdout_is_one_line_and_a_failure(dense: Path) -> None:
    closed = shell(f"{NINFER} describe {dense} >&-")
    assert (closed.returncode, closed.stderr) == (
        2,
        b"ninfer: error: stdout is closed; the result would be lost\n",
    )
    full = shell(f"{NINFER} describe {dense} >/dev/full")
    assert (full.returncode, full.stderr) == (
        1,
        b"ninfer: error: stdout: No space left on device\n",
    )


def test_a_closed_stderr_keeps_stdout_clean(dense: Path) -> None:
    run = f"{NINFER} run {dense} --prompt hi --no-thinking --max-new 8 {' '.join(RUN)}"
    assert shell(f"{run} 2>&-").stdout == shell(f"{run} 2>/dev/null").stdout != b""


def test_text_that_stdout_cannot_encode_is_escaped(dense: Path, tmp_path: Path) -> None:
    path = tmp_path / "modèle.ninfer"
    path.write_bytes(dense.read_bytes())
    done = shell(f"{NINFER} describe '{path}'", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"mod\xe8le.ninfer" in done.stdout


def signalled_synth(
    output: Path, number: signal.Signals, disposition: signal.Handlers, layers: int
) -> int:
    """The status of a synth that got a signal as soon as its first file lay there.

    How it takes the signal is set, since a test run in the background may have inherited either.
    """
    command = [sys.executable, "-m", "ninfer", "synth", "-o", str(output)]
    command += ["--set", f"num_hidden_layers={layers}"]
    process = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(number, disposition)
    )
    deadline = time.monotonic() + 120
    while not any(output.parent.iterdir()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    return process.wait(timeout=120)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_temporary_file(tmp_path: Path, number: signal.Signals) -> None:
    status = signalled_synth(tmp_path / "a.ninfer", number, signal.SIG_DFL, layers=64)
    assert status == 128 + number
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_an_ignored_signal_stays_ignored(tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "a.ninfer"
    assert signalled_synth(output, number, signal.SIG_IGN, layers=8) == 0
    assert list(tmp_path.iterdir()) == [output]


def test_an_option_given_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(capsys, "run", "a.ninfer", "--prompt", "a", "--prompt", "b")
    assert status == 2
    assert "--prompt is given twice" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "", "--prompt", "x"], "ARTIFACT '': must be a path"),
        (["run", "a.ninfer", "--messages", ""], "--messages '': must be a path"),
        (["synth", "-o", ""], "--output '': must be a path"),
    ],
)
def test_an_empty_path_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, _, err = call(capsys, *arguments)
    assert status == 2
    assert message in err


def test_the_environment_matters_only_when_the_flag_is_not_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NINFER_CUDA_SYNC", "")
    assert "a.ninfer" in call(capsys, "run", "a.ninfer", "--prompt", "x")[2]
    monkeypatch.setenv("NINFER_CUDA_SYNC", "slow")
    with pytest.raises(SystemExit):
        main(["run", "--help"])


def test_a_second_command_finds_the_prompt_in_the_folder(
    capsys: pytest.CaptureFixture[str], dense: Path, tmp_path: Path
) -> None:
    options = ["--prompt", "word " * 50, "--max-new", 8, *RUN, "--prefix-dir", tmp_path]
    status, first, err = call(capsys, "run", dense, "--no-thinking", *options)
    assert status == 0
    assert "prefix: cached 0 of " in err and " prompt tokens (no_match)\n" in err
    status, second, err = call(capsys, "run", dense, "--no-thinking", *options)
    assert (status, second) == (0, first)
    cached = int(err.split("prefix: cached ")[1].split()[0])
    assert cached >= 128 and f"cached {cached} of " in err and "(no_match)" not in err
