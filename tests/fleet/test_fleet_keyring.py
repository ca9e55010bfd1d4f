"""Keys of the system's keyring: their place in the order, silence about them, failing keyrings."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from ninfer.cli import main
from ninfer.cli.fleet import opening
from ninfer.cli.fleet.keyring_lookup import from_keyring
from ninfer.errors import UsageError
from ninfer.fleet.config import load_settings
from tests.fleet.conftest import Scene
from tests.fleet.vendor import KEY

Rings = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Rings:
    """Puts a package `keyring` in place, with its documented calls; returns what it was asked."""

    def install(held: dict[str, str], failure: str = "") -> list[tuple[str, str]]:
        asked: list[tuple[str, str]] = []
        errors = ModuleType("keyring.errors")
        errors.KeyringError = type("KeyringError", (Exception,), {})
        for name in ("NoKeyringError", "KeyringLocked"):
            setattr(errors, name, type(name, (errors.KeyringError,), {}))

        def get_password(service: str, username: str) -> str | None:
            asked.append((service, username))
            if failure:
                raise getattr(errors, failure)("locked up")
            return held.get(username) if service == "ninfer" else None

        package = ModuleType("keyring")
        package.get_password = get_password
        package.errors = errors
        monkeypatch.setitem(sys.modules, "keyring", package)
        monkeypatch.setitem(sys.modules, "keyring.errors", errors)
        return asked

    return install


def test_environment_then_dotenv_then_keyring(ring: Rings, tmp_path: Path) -> None:
    asked = ring({"VAST_API_KEY": "from ring", "NINFER_DISK": "900"})
    ringed = load_settings({}, tmp_path, tmp_path, from_keyring)
    assert ringed.secret("VAST_API_KEY") == ringed.text("VAST_API_KEY") == "from ring"
    assert asked == [("ninfer", "VAST_API_KEY")], "asked once"
    assert ringed.text("NINFER_DISK") == "", "only secrets are looked for there"
    (tmp_path / ".env").write_text("VAST_API_KEY=from-file\n")
    assert load_settings({}, tmp_path, tmp_path, from_keyring).secret("VAST_API_KEY") == "from-file"
    given = {"VAST_API_KEY": "given"}
    assert load_settings(given, tmp_path, tmp_path, from_keyring).secret("VAST_API_KEY") == "given"
    blank = load_settings({"VAST_API_KEY": ""}, tmp_path, tmp_path, from_keyring)
    assert blank.text("VAST_API_KEY") == "", "set to nothing on purpose"
    assert len(asked) == 1


def test_it_is_shown_nowhere(ring: Rings, tmp_path: Path) -> None:
    ring({"VAST_API_KEY": "ring-secret"})
    settings = load_settings({}, tmp_path, tmp_path, from_keyring)
    settings.secret("VAST_API_KEY")
    assert settings.redact("a ring-secret b") == "a <VAST_API_KEY> b"
    assert "ring-secret" not in repr(settings)


def test_a_command_takes_its_key_from_there(
    ring: Rings,
    scene: Scene,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NINFER_PROJ", str(tmp_path / "empty"))
    monkeypatch.setenv("VAST_URL", scene.wire.root)
    monkeypatch.setattr(opening, "clock", lambda: scene.vendor.clock)
    ring({"VAST_API_KEY": KEY})
    assert main(["status"]) == 0, "the vendor knows the key"
    captured = capsys.readouterr()
    assert KEY not in captured.out + captured.err
    ring({})
    assert main(["status"]) == 2
    assert "keyring set ninfer VAST_API_KEY" in capsys.readouterr().err


@pytest.mark.parametrize("failure", ["KeyringLocked", "NoKeyringError"])
def test_a_keyring_that_fails_stops_only_what_needs_it(
    ring: Rings, tmp_path: Path, failure: str
) -> None:
    ring({}, failure)
    settings = load_settings({"NINFER_API_KEY": "given"}, tmp_path, tmp_path, from_keyring)
    assert settings.text("VAST_API_KEY") == "" and settings.text("NINFER_API_KEY") == "given"
    told = "unlock it" if failure == "KeyringLocked" else r"VAST_API_KEY\)$"
    with pytest.raises(UsageError, match=rf"VAST_API_KEY is not set.*{told}"):
        settings.secret("VAST_API_KEY")


def test_without_the_package_there_is_no_keyring() -> None:
    assert from_keyring("VAST_API_KEY") is None
