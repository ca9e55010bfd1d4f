"""The systemd unit: systemd reads it as meant, and no secret gets into it."""

import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.cli.main import main
from ninfer.errors import UsageError
from ninfer.server.unit import Unit, quoted

UNIT = Unit(
    name="ninfer",
    python=sys.executable,
    arguments=("/models/a.ninfer", "--port", "9000"),
    environment_file=Path("/etc/ninfer/ninfer.env"),
    drain_seconds=30,
)


def entries(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line:
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize(
    "value", ["a b", "100%", "$HOME", 'say "x"', "back\\slash", "semi;colon", "", "it's"]
)
def test_arguments_reach_the_server_as_they_are(value: str):
    """As systemd.service(5) splits: quotes, then %% and $$."""
    text = replace(UNIT, arguments=("/m.ninfer", "--model-id", value)).text()
    (line,) = entries(text)["ExecStart"]
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]
    assert words == [
        *(sys.executable, "-P", "-m", "ninfer", "serve", "/m.ninfer", "--model-id"),
        value,
    ]


def test_rights_are_taken_away():
    own, system = entries(UNIT.text()), entries(replace(UNIT, account="serving").text())
    assert own["NoNewPrivileges"] == system["NoNewPrivileges"] == ["yes"]
    assert own["UMask"] == ["0077"] and own["TimeoutStopSec"] == ["45"]
    assert "User" not in own and "CapabilityBoundingSet" not in own
    assert system["User"] == ["serving"] and system["CapabilityBoundingSet"] == [""]
    assert system["DevicePolicy"] == ["closed"] and "char-nvidia rw" in system["DeviceAllow"]
    assert own["WantedBy"] == ["default.target"] and system["WantedBy"] == ["multi-user.target"]
    assert own["EnvironmentFile"] == ["-/etc/ninfer/ninfer.env"]


@pytest.mark.e2e
@pytest.mark.systemd
@pytest.mark.parametrize("account", [None, "daemon"])
def test_systemd_finds_nothing_wrong(tmp_path: Path, account: str | None):
    verify = shutil.which("systemd-analyze")
    assert verify is not None, "systemd-analyze is missing: apt-get install systemd"
    path = tmp_path / "ninfer.service"
    path.write_text(replace(UNIT, account=account).text())
    done = subprocess.run(
        [verify, "verify", "--man=no", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize("arguments", [("--api-key", "k"), ("--api-key=k",)])
def test_keys_are_refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(UsageError, match="NINFER_API_KEY"):
        replace(UNIT, arguments=("/m", *arguments)).text()
    assert main(["service", "show", "m.ninfer", "--", *arguments]) == 2
    said = capsys.readouterr()
    assert "--api-key-file" in said.err and said.out == ""


@pytest.mark.parametrize("name", ["", "../x", "a b", "-x", "a" * 65, "a\nb"])
def test_names_that_are_none(name: str):
    with pytest.raises(UsageError, match="--name"):
        replace(UNIT, name=name).text()


def test_a_line_break_is_refused():
    with pytest.raises(UsageError, match="line break"):
        replace(UNIT, arguments=("/m", "--model-id", "a\nExecStartPost=/bin/sh")).text()
    assert quoted("plain") == "plain"


def test_install_writes_once_and_keeps_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    model = tmp_path / "m.ninfer"
    model.touch()
    monkeypatch.chdir(tmp_path)
    assert main(["service", "install", "m.ninfer", "--", "--port", "9000"]) == 0
    said = capsys.readouterr()
    path = Path(said.out.strip())
    assert path == tmp_path / "systemd" / "user" / "ninfer.service"
    assert f"{model} --port 9000" in path.read_text()
    assert "systemctl --user enable --now ninfer" in said.err
    secrets = tmp_path / "ninfer" / "ninfer.env"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    secrets.write_text("NINFER_API_KEY=mine\n")
    assert main(["service", "install", "m.ninfer"]) == 0
    assert secrets.read_text() == "NINFER_API_KEY=mine\n" and "9000" not in path.read_text()
    assert sorted(p.name for p in path.parent.iterdir()) == ["ninfer.service"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show", "m.ninfer", "--", "--port", "70000"], "--port"),
        (["show", "m.ninfer", "--", "--no-such-option"], "--no-such-option"),
        (["show", "m.ninfer", "--account", "me"], "--account: only a unit of --system"),
        (["show", "m.ninfer", "--system", "--account", "root"], "--account USER"),
        (["install", "m.ninfer", "--folder", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_wrong_use_is_named(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]):
    assert main(["service", *arguments]) == 2
    assert reason in capsys.readouterr().err
