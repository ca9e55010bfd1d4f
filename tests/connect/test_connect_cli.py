"""`ninfer connect` as a person types it: what is asked of the server, printed and written."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ninfer.cli import main
from tests.client.scripted import ScriptedRequest, ScriptedServer

Start = Callable[[Callable[[ScriptedRequest], None]], ScriptedServer]
MODELS = {"data": [{"id": "m-1", "max_model_len": 4096, "input_modalities": ["text", "image"]}]}


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "OPENCODE_CONFIG", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("NINFER_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def keyed(request: ScriptedRequest) -> None:
    if request.headers.get("authorization") == "Bearer right":
        request.reply(MODELS)
    else:
        request.reply({"error": {"message": "no key"}}, 401)


def away() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_printed_by_default_and_nothing_is_touched(
    capsys: pytest.CaptureFixture[str], scripted_server: Start, home: Path
) -> None:
    server = scripted_server(lambda request: request.reply(MODELS))
    status, out, err = call(capsys, "connect", "opencode", server.root + "/v1/")
    assert status == 0
    model = json.loads(out)["provider"]["ninfer"]["models"]["m-1"]
    assert model["limit"]["context"] == 4096 and model["attachment"] is True
    assert "apiKey" not in out  # this server wants none
    assert f"goes into {home}/.config/opencode/opencode.json" in err
    assert list(home.iterdir()) == []


def test_written_with_a_backup_then_left_alone(
    capsys: pytest.CaptureFixture[str], scripted_server: Start, home: Path
) -> None:
    server = scripted_server(lambda request: request.reply(MODELS))
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text("# mine\n")
    status, out, err = call(capsys, "connect", "codex", server.root, "--write")
    assert (status, out) == (0, "")
    assert f"{file}: written; the file as it was: {file}." in err and "then: codex" in err
    text = file.read_text()
    assert text.startswith("# mine\n") and 'model = "m-1"' in text and "env_key" not in text
    [backup] = file.parent.glob("*.bak")
    assert backup.read_text() == "# mine\n"
    _, _, err = call(capsys, "connect", "codex", server.root, "--write")
    assert "has it already; nothing was changed" in err
    assert file.read_text() == text and list(file.parent.glob("*.bak")) == [backup]


def test_the_key_is_used_by_its_variable_and_never_written(
    capsys: pytest.CaptureFixture[str],
    scripted_server: Start,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = scripted_server(keyed)
    status, _, err = call(capsys, "connect", "opencode", server.root)
    assert status == 1
    assert (
        err == f"ninfer: error: {server.root}: 401 no key; set NINFER_API_KEY to the server's key\n"
    )
    monkeypatch.setenv("MY_KEY", "right")
    file = home / "x.json"
    status, out, err = call(
        capsys, "connect", "opencode", server.root, "--key-env", "MY_KEY", "--write", "--file", file
    )
    assert status == 0 and "set MY_KEY to the server's key" in err
    assert "{env:MY_KEY}" in file.read_text()
    assert "right" not in file.read_text() + out + err


def test_a_server_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    url = away()
    status, out, err = call(capsys, "connect", "zed", url)
    assert status == 1 and out == "" and "or give --model NAME and --context N" in err
    status, out, err = call(capsys, "connect", "zed", url, "--model", "m", "--context", 9000)
    assert status == 0 and '"max_tokens": 9000' in out
    assert "going by --model and --context" in err and "if it wants a key, set NINFER_" in err
    named = ("--model", "m", "--context", 9000, "--provider", "my-5090")
    status, out, err = call(capsys, "connect", "zed", url, *named)
    assert status == 2 and "from MY_5090_API_KEY only" in err
    status, out, err = call(capsys, "connect", "zed", url, *named, "--key-env", "MY_5090_API_KEY")
    assert status == 0 and '"my-5090"' in out and '"ninfer"' not in out
    status, out, err = call(capsys, "connect", "opencode", url, *named[:4], "--provider", "9/x")
    assert status == 2 and "--provider '9/x': must be letters" in err
    status, out, err = call(capsys, "connect", "zed", url, "--model", "m")
    assert status == 2 and "zed needs the context length" in err


def test_models_are_chosen_by_name(
    capsys: pytest.CaptureFixture[str], scripted_server: Start
) -> None:
    more = {"data": [*MODELS["data"], {"id": "m-2"}]}
    server = scripted_server(lambda request: request.reply(more))
    _, out, _ = call(capsys, "connect", "codex", server.root, "--model", "m-2", "--context", 77)
    assert 'model = "m-2"' in out and "model_context_window = 77" in out
    status, _, err = call(capsys, "connect", "codex", server.root, "--model", "m-3")
    assert status == 2 and f"--model m-3: {server.root} has m-1, m-2" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vim",), "CLIENT 'vim': unknown; known: opencode"),
        (("codex", "ftp://x"), "URL 'ftp://x': must be an address"),
        (("codex", "--context", "0", "--model", "m"), "--context 0: must be positive"),
        (("codex", "--file", "x"), "--file x: needs --write"),
        (("codex", "--key-env", "a-b"), "--key-env: must be the name of an environment variable"),
    ],
)
def test_bad_arguments_are_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    status, _, err = call(capsys, "connect", *arguments)
    assert status == 2 and message in err


def test_a_file_that_cannot_be_read_is_named_and_kept(
    capsys: pytest.CaptureFixture[str], scripted_server: Start, home: Path
) -> None:
    server = scripted_server(lambda request: request.reply(MODELS))
    file = home / ".qwen" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"a": 1,,}')
    status, _, err = call(capsys, "connect", "qwen-code", server.root, "--write")
    assert status == 1 and f"{file}:1:9: a string is missing" in err
    assert file.read_text() == '{"a": 1,,}' and len(list(file.parent.iterdir())) == 1


def test_open_webui_is_told_what_else_it_needs(
    capsys: pytest.CaptureFixture[str], scripted_server: Start
) -> None:
    server = scripted_server(lambda request: request.reply(MODELS))
    _, out, err = call(capsys, "connect", "open-webui", server.root)
    assert out == f'OPENAI_API_BASE_URLS="{server.root}/v1"\nOPENAI_API_KEYS="unused"\n'
    assert "host.docker.internal" in err and "at its first start" in err
