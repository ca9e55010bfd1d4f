"""Each client's configuration: what is written, that it is stable, and what it never touches."""

import json
import os
import stat
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.connect import CLIENTS, ServedModel, amend_file, find_client
from ninfer.connect.dotenv import amend_open_webui
from ninfer.connect.jsonc import parse
from ninfer.connect.options import ConnectOptions, check_connect
from ninfer.errors import ClientConfigError, UsageError

SERVER = ServedModel(
    "http://127.0.0.1:8080", "qwen3.8-27b", context=65536, vision=True, needs_key=True
)

# A file that its user has already written in, and what must be there after an edit.
OWN = {
    "opencode": (
        '{\n  // my own\n  "theme": "x",\n  "provider": {"other": {"npm": "y"}},\n'
        '  "model": "other/m",\n}\n',
        ("// my own", '"theme": "x"', '"other": {"npm": "y"}'),
    ),
    "claude-code": (
        '{"permissions": {"allow": ["Bash"]}, "env": {"FOO": "bar"}}\n',
        ('"permissions": {"allow": ["Bash"]}', '"FOO": "bar"'),
    ),
    "codex": (
        '# my own\nmodel = "gpt"   # the usual\n\n[mcp_servers.x]\ncommand = "y"\n',
        ("# my own", "# the usual", '[mcp_servers.x]\ncommand = "y"'),
    ),
    "qwen-code": (
        '{\n  "$version": 4,\n  "modelProviders": {"openai": [{"id": "qwen3.8-27b", '
        '"baseUrl": "http://elsewhere/v1"}]}\n}\n',
        ('"$version": 4', '{"id": "qwen3.8-27b", "baseUrl": "http://elsewhere/v1"}'),
    ),
    "zed": (
        '// Zed settings\n{\n  "theme": "One Dark", // dark\n  "agent": {"enabled": true},\n}\n',
        ("// Zed settings", "// dark", '"enabled": true'),
    ),
    "open-webui": (
        "# mine\nexport OPENAI_API_BASE_URLS='https://a/v1;https://b/v1'\nOPENAI_API_KEYS=k1 # c\n",
        ("# mine", "https://a/v1;https://b/v1;", " # c", "k1;;"),
    ),
}


def write(name: str, text: str, server: ServedModel = SERVER, *, default: bool = True) -> str:
    return CLIENTS[name].amend(text, server, "FILE", default=default)


def read(name: str, text: str) -> dict:
    return tomllib.loads(text) if name == "codex" else parse(text, "FILE").value


@pytest.mark.parametrize("name", CLIENTS)
def test_what_the_user_wrote_stays_and_a_second_time_changes_nothing(name: str) -> None:
    own, kept = OWN[name]
    once = write(name, own)
    assert once != own
    for piece in kept:
        assert piece in once
    assert write(name, once) == once
    assert "ninfer" in once.lower() and "8080" in once


@pytest.mark.parametrize("name", CLIENTS)
def test_a_moved_server_replaces_its_own_entries_only(name: str) -> None:
    first = write(name, OWN[name][0])
    moved = replace(SERVER, root="http://10.0.0.9:9000", context=1024)
    second = write(name, first, moved)
    assert "10.0.0.9:9000" in second
    for piece in OWN[name][1]:
        assert piece in second
    if name not in ("qwen-code", "open-webui"):  # which list servers side by side
        assert "127.0.0.1" not in second and "65536" not in second


def test_opencode_has_what_it_reads() -> None:
    config = json.loads(write("opencode", ""))
    provider = config["provider"]["ninfer"]
    assert provider["npm"] == "@ai-sdk/openai-compatible"
    assert provider["options"] == {
        "baseURL": "http://127.0.0.1:8080/v1",
        "apiKey": "{env:NINFER_API_KEY}",
    }
    model = provider["models"]["qwen3.8-27b"]
    assert model["limit"] == {"context": 65536, "output": 16384}
    assert model["tool_call"] and model["reasoning"] and model["attachment"]
    assert model["modalities"] == {"input": ["text", "image"], "output": ["text"]}
    assert config["model"] == "ninfer/qwen3.8-27b"


def test_claude_code_has_what_it_reads() -> None:
    config = json.loads(write("claude-code", ""))
    assert config["env"]["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8080"
    models = [value for name, value in config["env"].items() if name.endswith("MODEL")]
    assert models == ["qwen3.8-27b"] * 4
    assert all(isinstance(value, str) for value in config["env"].values())
    assert config["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "65536"
    assert config["apiKeyHelper"] == "printenv NINFER_API_KEY || echo unused"
    with pytest.raises(UsageError, match="--keep-default"):
        write("claude-code", "", default=False)


def test_codex_has_what_it_reads() -> None:
    config = tomllib.loads(write("codex", ""))
    assert config["model_provider"] == "ninfer" and config["model"] == "qwen3.8-27b"
    assert config["model_context_window"] == 65536
    assert config["model_providers"]["ninfer"] == {
        "name": "ninfer",
        "base_url": "http://127.0.0.1:8080/v1",
        "wire_api": "responses",
        "env_key": "NINFER_API_KEY",
    }


def test_codex_forgets_the_variable_of_a_server_without_keys() -> None:
    keyless = write("codex", write("codex", ""), replace(SERVER, needs_key=False))
    assert "env_key" not in tomllib.loads(keyless)["model_providers"]["ninfer"]


def test_qwen_code_has_what_it_reads() -> None:
    config = json.loads(write("qwen-code", ""))
    [model] = config["modelProviders"]["openai"]
    assert model["envKey"] == "NINFER_API_KEY"
    assert (model["id"], model["baseUrl"]) == ("qwen3.8-27b", "http://127.0.0.1:8080/v1")
    assert model["generationConfig"] == {"contextWindowSize": 65536, "modalities": {"image": True}}
    assert config["security"]["auth"]["selectedType"] == "openai"
    assert config["model"]["name"] == "qwen3.8-27b"


def test_zed_has_what_it_reads() -> None:
    config = parse(write("zed", ""), "f").value
    provider = config["language_models"]["openai_compatible"]["ninfer"]
    assert provider["api_url"] == "http://127.0.0.1:8080/v1"
    [model] = provider["available_models"]
    assert (model["name"], model["max_tokens"]) == ("qwen3.8-27b", 65536)
    assert model["capabilities"]["images"] and model["capabilities"]["tools"]
    assert config["agent"]["default_model"] == {"provider": "ninfer", "model": "qwen3.8-27b"}
    with pytest.raises(UsageError, match="--context"):
        write("zed", "", replace(SERVER, context=None))
    with pytest.raises(UsageError, match="NINFER_API_KEY only"):
        write("zed", "", replace(SERVER, key_env="OTHER"))


@pytest.mark.parametrize("name", sorted(set(CLIENTS) - {"claude-code", "open-webui"}))
def test_the_default_model_stays_on_demand(name: str) -> None:
    own = OWN[name][0]
    before, after = read(name, own), read(name, write(name, own, default=False))
    for member in ("model", "model_provider", "security", "agent"):
        assert after.get(member) == before.get(member)
    assert read(name, write(name, own)) != after


@pytest.mark.parametrize(
    ("text", "urls", "keys"),
    [
        ("", "U", "K"),
        ("OPENAI_API_BASE_URL=https://a/v1\nOPENAI_API_KEY=k\n", "https://a/v1;U", "k;K"),
        ("OPENAI_API_KEY=sk\n", "https://api.openai.com/v1;U", "sk;K"),
        ('OPENAI_API_BASE_URLS="U;https://b/v1"\nOPENAI_API_KEYS="x;y"\n', "U;https://b/v1", "K;y"),
        ("OPENAI_API_BASE_URLS=https://a/v1\nOPENAI_API_KEYS=", "https://a/v1;U", ";K"),
    ],
)
def test_open_webui_lists_stay_parallel(text: str, urls: str, keys: str) -> None:
    url, key = "http://127.0.0.1:8080/v1", "${NINFER_API_KEY}"
    out = amend_open_webui(text.replace("U;", url + ";"), SERVER, "f")
    lines = dict(line.split("=", 1) for line in out.splitlines())
    assert lines["OPENAI_API_BASE_URLS"] == f'"{urls.replace("U", url)}"'
    assert lines["OPENAI_API_KEYS"] == f'"{keys.replace("K", key)}"'
    assert amend_open_webui(out, SERVER, "f") == out


def test_open_webui_lists_that_do_not_match_are_refused() -> None:
    with pytest.raises(ClientConfigError, match="2 entries for 1"):
        amend_open_webui("OPENAI_API_BASE_URLS=a\nOPENAI_API_KEYS=k;l\n", SERVER, "f")


def test_a_broken_toml_file_is_refused() -> None:
    with pytest.raises(ClientConfigError, match=r"FILE: not TOML: .*line 1"):
        write("codex", "model = \n")
    with pytest.raises(ClientConfigError, match="FILE: model_providers is no table"):
        write("codex", 'model_providers = "x"\n')


def test_a_preview_form_of_qwen_code_is_refused() -> None:
    text = '{"modelProviders": {"openai": {"protocol": "openai", "models": []}}}'
    with pytest.raises(ClientConfigError, match=r"modelProviders\.openai is an object"):
        write("qwen-code", text)


@pytest.mark.parametrize(
    ("name", "environment", "path"),
    [
        ("opencode", {}, "H/.config/opencode/opencode.json"),
        ("opencode", {"XDG_CONFIG_HOME": "/x"}, "/x/opencode/opencode.json"),
        ("opencode", {"OPENCODE_CONFIG": "/y.json"}, "/y.json"),
        ("claude-code", {}, "H/.claude/settings.json"),
        ("claude-code", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/settings.json"),
        ("codex", {}, "H/.codex/config.toml"),
        ("codex", {"CODEX_HOME": "/k"}, "/k/config.toml"),
        ("qwen-code", {}, "H/.qwen/settings.json"),
        ("zed", {}, "H/.config/zed/settings.json"),
        ("open-webui", {}, ".env"),
    ],
)
def test_locations(
    name: str,
    environment: dict[str, str],
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    found = CLIENTS[name].location(environment, tmp_path)
    assert found == Path(path.replace("H", str(tmp_path)))


def test_opencode_prefers_the_file_with_comments(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "opencode" / "opencode.jsonc"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert CLIENTS["opencode"].location({}, tmp_path) == file


def shout(text: str) -> str:
    return text.upper()


def test_a_file_is_replaced_after_a_backup(tmp_path: Path) -> None:
    real, link = tmp_path / "dot" / "real.json", tmp_path / "link.json"
    real.parent.mkdir()
    real.write_bytes(b"\xef\xbb\xbfab\r\n")
    real.chmod(0o640)
    link.symlink_to(real)
    changed, backup = amend_file(link, shout)
    assert changed and backup is not None and backup.read_bytes() == b"\xef\xbb\xbfab\r\n"
    assert link.is_symlink() and real.read_bytes() == b"\xef\xbb\xbfAB\r\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert amend_file(link, shout) == (False, None)
    real.write_text("cd")
    _, second = amend_file(link, shout)
    assert second != backup and backup.read_bytes() == b"\xef\xbb\xbfab\r\n"
    assert sorted(file.name for file in real.parent.iterdir()) == sorted(
        [real.name, backup.name, second.name]
    )


def test_a_missing_file_and_its_folders_are_made(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.json"
    assert amend_file(file, lambda text: text + "{}") == (True, None)
    assert file.read_text() == "{}"


def test_a_failed_write_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ClientConfigError, match="cannot be written: No space"):
        amend_file(file, shout)
    assert file.read_text() == "old"
    assert [entry.suffix for entry in tmp_path.iterdir() if entry != file] == [".bak"]


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda file: file.write_bytes(b'{"a": "\xff"}'), "not UTF-8 text at byte 7"),
        (lambda file: file.mkdir(), "cannot be read: Is a directory"),
    ],
)
def test_an_unreadable_file_is_named(
    prepare: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "f.json"
    prepare(file)
    with pytest.raises(ClientConfigError, match=message) as caught:
        amend_file(file, shout)
    assert str(file) in str(caught.value)


def test_a_key_in_place_of_a_variable_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        check_connect(ConnectOptions(key_env="sk-secret"))
    assert "secret" not in str(caught.value)
    with pytest.raises(UsageError, match="known: opencode, claude-code"):
        find_client("vim")
