"""Settings: where a value comes from, what a `.env` may hold, what is shown of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer.connect import read_dotenv, set_dotenv
from ninfer.errors import UsageError
from ninfer.fleet.config import check_name, load_settings
from ninfer.fleet.options import CapOptions, OfferOptions, caps_of, need_of
from ninfer.fleet.variables import BY_NAME, VARIABLES

ORIGINAL = {
    "VAST_API_KEY",
    "NINFER_API_KEY",
    "NINFER_BASE_URL",
    "NINFER_PROJ",
    "NINFER_SSH_KEY",
    "NINFER_DISK",
    "NINFER_INSTANCE",
    "NINFER_MODEL",
    "NINFER_PROVIDER",
    "NINFER_KIT_URL",
    "NINFER_KIT_SHA1",
    "NINFER_KIT_KEY",
    "NINFER_B2_ENV",
    "NINFER_SRC_BRANCH",
    "NINFER_BENCH_TOKENS",
}


def test_every_variable_of_the_original_is_known() -> None:
    assert set(BY_NAME) >= ORIGINAL


@pytest.mark.parametrize("variable", [v for v in VARIABLES if v.name != "NINFER_PROJ"])
def test_each_works_from_dotenv_and_the_environment_wins(tmp_path: Path, variable) -> None:
    """The original ignored most of them in `.env`."""
    (tmp_path / ".env").write_text(f"{variable.name}='from file'\n")
    assert load_settings({}, tmp_path, tmp_path).text(variable.name) == "from file"
    both = load_settings({variable.name: "given"}, tmp_path, tmp_path)
    assert both.text(variable.name) == "given" and both.origins[variable.name] == "environment"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("VAST_API_KEY=secret|&x", "secret|&x"),
        ("VAST_API_KEY=$(touch pwned)`touch pwned`;touch pwned", None),
        ("export VAST_API_KEY = 'a b' # note", "a b"),
        ('VAST_API_KEY="$HOME/x"', "$HOME/x"),
        ("VAST_API_KEY=a#b", "a#b"),
        ("VAST_API_KEY=a\r\n", "a"),
        ("VAST_API_KEY=one\nVAST_API_KEY=two", "two"),
        ("# VAST_API_KEY=x\nVAST_API_KEY=", ""),
    ],
)
def test_dotenv_is_data(tmp_path: Path, line: str, value: str | None) -> None:
    (tmp_path / ".env").write_bytes(line.encode())
    found = load_settings({}, tmp_path, tmp_path).text("VAST_API_KEY")
    assert not (tmp_path / "pwned").exists() and not Path("pwned").exists()
    assert value is None or found == value


def test_dotenv_round_trip_keeps_everything_else() -> None:
    text = "# mine\nA=1\nNINFER_BASE_URL=old # note\nB='2'\n"
    changed = set_dotenv(text, "NINFER_BASE_URL", "http://x/v1")
    assert changed == text.replace("old", '"http://x/v1"')
    assert read_dotenv(changed)["NINFER_BASE_URL"] == "http://x/v1"
    assert read_dotenv(set_dotenv("", "A", "b")) == {"A": "b"}


def test_base_url_is_written_to_a_private_file(tmp_path: Path) -> None:
    settings = load_settings({}, tmp_path, tmp_path)
    settings.write_base_url("http://127.0.0.1:8080/v1")
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    again = load_settings({}, tmp_path, tmp_path)
    assert again.text("NINFER_BASE_URL") == "http://127.0.0.1:8080/v1"


def test_missing_key_names_itself_and_the_file(tmp_path: Path) -> None:
    settings = load_settings({}, tmp_path, tmp_path)
    with pytest.raises(UsageError, match=rf"VAST_API_KEY is not set.*{tmp_path}/.env"):
        settings.secret("VAST_API_KEY")


def test_secrets_others_may_read_are_refused_with_the_remedy(tmp_path: Path) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text("VAST_API_KEY=abcdef\n")
    dotenv.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        load_settings({}, tmp_path, tmp_path).refuse_readable()
    dotenv.chmod(0o600)
    load_settings({}, tmp_path, tmp_path).refuse_readable()
    dotenv.write_text("NINFER_DISK=80\n")
    dotenv.chmod(0o644)
    load_settings({}, tmp_path, tmp_path).refuse_readable()


def test_values_are_shown_nowhere(tmp_path: Path) -> None:
    settings = load_settings({"VAST_API_KEY": "abcdef", "NINFER_DISK": "80"}, tmp_path, tmp_path)
    assert "abcdef" not in repr(settings)
    assert settings.redact("key abcdef of 80") == "key <VAST_API_KEY> of 80"


def test_replaced_variable_is_refused_with_its_successor(tmp_path: Path) -> None:
    settings = load_settings({"NINFER_KIT_SHA1": "0a75"}, tmp_path, tmp_path)
    with pytest.raises(UsageError, match="NINFER_KIT_SHA256"):
        settings.refuse_old()
    load_settings({"NINFER_KIT_SHA1": ""}, tmp_path, tmp_path).refuse_old()


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1e999"])
def test_bad_number_names_variable_and_origin(tmp_path: Path, text: str) -> None:
    settings = load_settings({"NINFER_BUDGET": text}, tmp_path, tmp_path)
    with pytest.raises(UsageError, match=r"NINFER_BUDGET=.*environment"):
        caps_of(settings, CapOptions())


def test_records_do_not_depend_on_the_folder_one_stands_in(tmp_path: Path) -> None:
    one = load_settings({}, tmp_path / "a", tmp_path)
    other = load_settings({}, tmp_path / "b", tmp_path)
    assert one.records == other.records and one.dotenv != other.dotenv
    project = load_settings({"NINFER_PROJ": str(tmp_path / "p")}, tmp_path, tmp_path)
    assert project.records.parent == project.dotenv.parent == tmp_path / "p"


def test_need_by_card(tmp_path: Path) -> None:
    settings = load_settings({}, tmp_path, tmp_path)
    caps = caps_of(settings, CapOptions())

    def need(**options):
        return need_of(settings, OfferOptions(**options), caps)

    assert need(gpu="rtx3090").disk == 60 and need(gpu="RTX 3090").reliability == 0.97
    assert need().disk == 80 and need().cuda == 13.1 and need().reliability == 0.995
    assert need().free_disk == 90 and 30000 < need().gpu_ram < 31500
    assert "H200" in need(gpu="h200").gpu_names
    for bad in ({"gpu": "rtx1"}, {"disk": 4}):
        with pytest.raises(UsageError):
            need(**bad)
    disk = load_settings({"NINFER_DISK": "120"}, tmp_path, tmp_path)
    assert need_of(disk, OfferOptions(gpu="rtx3090"), caps).disk == 120


@pytest.mark.parametrize("name", ["", "Box", "a b", "x" * 33, "-a", "a-", "7001", "a.b"])
def test_names_that_a_label_cannot_hold(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)
    check_name("box-2")


def test_fleet_needs_neither_torch_nor_the_extra() -> None:
    """Commands that end machines work in the base install."""
    code = (
        "import sys; import ninfer.cli.fleet.destroy, ninfer.cli.fleet.status, "
        "ninfer.cli.fleet.reap, ninfer.cli.fleet.offers, ninfer.cli.fleet.create; "
        "print(sorted({'torch', 'asyncssh', 'triton'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stderr
    assert os.environ.get("VAST_API_KEY") is None
