"""Client programs follow what a machine serves: those named now, and those named before."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.errors import UsageError
from ninfer.fleet.clients import check_clients, write_clients
from ninfer.fleet.config import load_settings
from ninfer.fleet.profiles import MODELS, check_card, profile
from ninfer.fleet.provision_options import card_of
from ninfer.fleet.provisioning import Record
from tests.fleet.conftest import Scene

ROOT = "http://127.0.0.1:8080"


def record(model: str) -> Record:
    return Record("7001", "", "kit", model, models=[model], context=4096)


def test_written_once_and_kept_up_later(scene: Scene, tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert write_clients(scene.fleet, (), record("one"), ROOT, environ) == []
    (path,) = write_clients(scene.fleet, ("opencode",), record("one"), ROOT, environ)
    text = path.read_text()
    assert "one" in text and f"{ROOT}/v1" in text
    assert write_clients(scene.fleet, (), record("one"), ROOT, environ) == []
    settings = json.loads(text)
    settings["model"] = "mine/other"
    path.write_text(json.dumps(settings))
    assert write_clients(scene.fleet, (), record("two"), ROOT, environ) == [path]
    changed = json.loads(path.read_text())
    assert "two" in json.dumps(changed["provider"]) and changed["model"] == "mine/other"
    assert len(list(path.parent.glob("*.bak"))) == 1


def test_clients_list_it_under_the_name_that_is_set(scene: Scene, tmp_path: Path) -> None:
    named = load_settings({"NINFER_PROVIDER": "ninfer-5090"}, tmp_path, tmp_path)
    fleet = replace(scene.fleet, settings=named)
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    opencode, zed = write_clients(fleet, ("opencode", "zed"), record("one"), ROOT, environ)
    found = json.loads(opencode.read_text())
    assert list(found["provider"]) == ["ninfer-5090"] and found["model"] == "ninfer-5090/one"
    zeds = json.loads(zed.read_text())["language_models"]["openai_compatible"]
    assert list(zeds) == ["ninfer-5090"]


def test_what_no_client_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown"):
        check_clients(load_settings({}, tmp_path, tmp_path), ("notepad",))
    odd = load_settings({"NINFER_PROVIDER": "a b"}, tmp_path, tmp_path)
    with pytest.raises(UsageError, match="NINFER_PROVIDER 'a b': must be letters"):
        check_clients(odd, ("opencode",))


def test_profiles_by_card() -> None:
    small, large = card_of("rtx3090"), card_of("rtx5090")
    model = MODELS["qwen38-27b"]
    assert "65536" in profile(model, small) and "8" in profile(model, large)
    assert profile(MODELS["tiny"], large) == () and profile(model, None) == ()
    drafts = profile(MODELS["moe-35b"], large)
    assert drafts[drafts.index("--spec") + 1] == "dflash" and "--lm-head-draft" not in drafts
    with pytest.raises(UsageError, match=r"RTX 3090 has 8\.6"):
        check_card(MODELS["nvfp4-27b"], small)
    check_card(MODELS["nvfp4-27b"], large)
