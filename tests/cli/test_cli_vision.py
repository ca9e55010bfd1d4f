"""`ninfer run` with pictures in a message file."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ninfer.cli import main

RUN = ["--max-context", "256", "--device", "cpu", "--greedy", "--no-thinking", "--max-new", "16"]


def ask(
    capsys: pytest.CaptureFixture[str], artifact: Path, source: Path, *options: str
) -> tuple[int, str, str]:
    part = {"type": "image_url", "image_url": {"url": str(source)}}
    file = source.with_suffix(".json")
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "What is this?"}]}]
    file.write_text(json.dumps(messages))
    status = main(["run", str(artifact), "--messages", str(file), *RUN, *options])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def picture(path: Path, seed: int) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 256, (80, 120, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def test_answers_differ_between_two_pictures(
    capsys: pytest.CaptureFixture[str], micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    answers = []
    for seed in (1, 2, 1):
        source = picture(tmp_path / f"{seed}.png", seed)
        status, out, err = ask(capsys, micro_artifacts["dense"], source, "--vision")
        assert status == 0 and "16 generated" in err
        answers.append(out)
    assert answers[0] == answers[2] != answers[1]


def test_without_the_option_the_part_and_the_option_are_named(
    capsys: pytest.CaptureFixture[str], micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    status, out, err = ask(capsys, micro_artifacts["dense"], picture(tmp_path / "a.png", 1))
    assert (status != 0, out) == (True, "")
    assert "messages[0].content[0] has a part of kind image" in err and "--vision" in err


def test_a_file_that_is_no_picture_is_named(
    capsys: pytest.CaptureFixture[str], micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "a.svg").write_text("<svg/>")
    status, _, err = ask(capsys, micro_artifacts["dense"], tmp_path / "a.svg", "--vision")
    assert status != 0
    assert "messages[0].content[0] is not a PNG" in err and "it is SVG" in err
