"""`ninfer evals run URL`: what EvalScope is told, its key, its failures, and the audit at the end.

A stand-in takes EvalScope's place here; tests/audit/evalscope_1_14 is what the real one wrote.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ninfer.cli import main

STAND_IN = """
import json, os, pathlib, sys

class TaskConfig:
    def __init__(self, **members):
        self.members = members

def run_task(task):
    members = dict(task.members)
    folder = pathlib.Path(__file__).parent
    words = pathlib.Path("/proc/self/cmdline").read_text()
    told = json.dumps({"members": members, "words": words, "environment": dict(os.environ)})
    (folder / "told.json").write_text(told)
    print("its own words")
    if members["limit"] == 13:
        sys.exit(7)
    (name,) = members["datasets"]
    out = pathlib.Path(members["work_dir"])
    for kind in ("predictions", "reviews"):
        (out / kind / "m").mkdir(parents=True, exist_ok=True)
    lines, reviews = [], []
    for index in range(4):
        message = {"role": "assistant", "content": str(index)}
        choice = {"message": message, "stop_reason": "stop"}
        usage = {"input_tokens": 5, "output_tokens": 2 + index}
        lines.append({"index": index, "model_output": {"choices": [choice], "usage": usage}})
        score = {"value": {"acc": float(index != 2)}, "prediction": str(index)}
        reviews.append({"index": index, "sample_score": {"score": score}})
    for kind, found in (("predictions", lines), ("reviews", reviews)):
        text = "".join(json.dumps(line) + "\\n" for line in found)
        (out / kind / "m" / (name + ".jsonl")).write_text(text)
"""
KEY = "a-key-that-nobody-may-see"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python whose EvalScope is the stand-in."""
    folder = tmp_path / "environment"
    folder.mkdir()
    (folder / "evalscope.py").write_text(STAND_IN)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def told(python: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((python.parent / "told.json").read_text())
    return found


def models(request: Any) -> None:
    right = request.headers.get("authorization") == f"Bearer {KEY}"
    if right:
        request.reply({"data": [{"id": "served"}]})
    else:
        request.reply({"error": {"message": "no"}}, 401)


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    python: Path,
    scripted_server: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Call:
    monkeypatch.setenv("NINFER_API_KEY", KEY)
    root = scripted_server(models).root

    def run(*words: object, partner: str = root) -> tuple[int, str, str]:
        usual = ("--output", tmp_path / "out", "--evalscope", python)
        status = main(["evals", "run", partner, *map(str, (*usual, *words))])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return run


def test_a_suite_ends_in_scores_and_the_audit(call: Call, python: Path) -> None:
    status, out, err = call("--suite", "aime25", "--concurrency", 3)
    assert status == 0
    assert "its own words" in err and "its own words" not in out
    rows = [line.split() for line in out.splitlines()]
    score, judged = (row for row in rows if row[:1] == ["aime25"])
    assert score[1:3] == ["4", "75.0%"] and judged[1:4] == ["4", "3", "(75%)"]
    assert "3 of 4 responses are usable; 1 contract broken" in out


def test_what_it_is_told(call: Call, python: Path) -> None:
    call("--suite", "gpqa-diamond", "--limit", 2, "--max-new", 900, "--no-thinking")
    members = told(python)["members"]
    assert members["datasets"] == ["gpqa_diamond"]
    assert members["dataset_args"] == {"gpqa_diamond": {"few_shot_num": 0}}
    assert (members["model"], members["limit"], members["repeats"]) == ("served", 2, 1)
    generation = members["generation_config"]
    assert (generation["max_tokens"], generation["n"], generation["temperature"]) == (900, 1, 0.6)
    assert generation["extra_body"] == {"chat_template_kwargs": {"enable_thinking": False}}


def test_the_key_is_on_no_command_line(call: Call, python: Path, tmp_path: Path) -> None:
    _, out, err = call("--suite", "aime26")
    assert told(python)["members"]["api_key"] == KEY
    assert KEY not in told(python)["words"] and KEY not in out + err
    for file in (tmp_path / "out").rglob("*"):
        assert file.is_dir() or KEY not in file.read_text()


def test_items_of_a_folder(call: Call, python: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    status, _, err = call("--suite", "general-qa", "--data", folder)
    assert status == 2 and "holds no NAME.jsonl" in err
    (folder / "sums.jsonl").write_text('{"query": "1 + 1 = ?", "response": "2"}\n')
    assert call("--suite", "general-qa", "--data", folder)[0] == 0
    arguments = told(python)["members"]["dataset_args"]["general_qa"]
    assert arguments["local_path"] == str(folder) and arguments["subset_list"] == ["sums"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--suite", "general-qa"), "--data FOLDER is missing"),
        (("--suite", "aime25", "--data", "x"), "--data x: suite aime25 brings its own items"),
        (("--suite", "aime25", "--task", "sums"), "--task: is for suites of this package"),
        (("--suite", "tiny"), "--evalscope: is for suites of EvalScope, not for tiny"),
        (("--suite", "aime25", "--concurrency", 0), "--concurrency 0: must be 1..64"),
    ],
)
def test_what_cannot_be_asked_is_refused(call: Call, words: tuple[Any, ...], reason: str) -> None:
    status, out, err = call(*words)
    assert (status, out) == (2, "")
    assert reason in err and len(err.splitlines()) == 1


def test_an_artifact_is_no_server(call: Call) -> None:
    status, _, err = call("--suite", "aime25", partner="tiny")
    assert status == 2 and "start 'ninfer serve tiny'" in err


def test_its_failure_is_ours(call: Call) -> None:
    status, out, err = call("--suite", "aime25", "--limit", 13)
    assert (status, out) == (1, "")
    assert "EvalScope ended with status 7; the reason is above" in err


def test_a_python_that_is_not_there(scripted_server: Any, tmp_path: Path, capsys: Any) -> None:
    words = ["evals", "run", scripted_server(models).root, "--suite", "aime25", "--output"]
    assert main([*words, str(tmp_path), "--evalscope", "/no/python"]) == 2
    assert "--evalscope /no/python: is no file" in capsys.readouterr().err


def test_without_evalscope_the_advice_is_to_install_it(
    scripted_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = scripted_server(models).root
    words = ["evals", "run", root, "--suite", "aime25", "--output", str(tmp_path / "out")]
    assert main(words) == 2
    assert "pip install 'ninfer[evals]'" in capsys.readouterr().err
