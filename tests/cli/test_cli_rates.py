"""Every command that prints a rate of written text says beside it what the text was worth."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from ninfer.cli.main import main
from tests.server.serving import END, serving

LOOP: Final = "once more and "
VERDICT: Final = re.compile(r"usable|not usable|a loop of|LOOP")
RATE: Final = re.compile(r"[0-9] tok/s")
Arguments = Callable[[Path, str, Path], list[str]]

# Command -> its arguments, of an artifact, a server's address and a folder.
COMMANDS: Final[dict[str, Arguments]] = {
    "run": lambda artifact, url, folder: [
        *("run", str(artifact), "--prompt", "Count.", "--max-new", "24", "--device", "cpu"),
    ],
    "bench corpus": lambda artifact, url, folder: [
        *("bench", "corpus", "--server", url, "--set", "tiny", "--fixture", "copy", "--seed", "1"),
        *("--max-new", "24", "--output", str(folder / "corpus.jsonl")),
    ],
    "bench serve": lambda artifact, url, folder: [
        *("bench", "serve", "--server", url, "--requests", "2", "--prompt-tokens", "100"),
        *("--output", str(folder / "load.jsonl")),
    ],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_rate_has_its_verdict(
    name: str,
    micro_artifacts: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(micro_artifacts["dense"]) as server:
        server.scripts.texts |= {"story": "The boat lay still." + END, "Copy": LOOP * 8}
        assert main(COMMANDS[name](micro_artifacts["dense"], server.url, tmp_path)) == 0
    out, err = capsys.readouterr()
    shown = (out + err).splitlines()
    rates = [at for at, line in enumerate(shown) if RATE.search(line) or "usable tok/s" in line]
    assert rates, "no rate to judge"
    # On the line of the rate, or at the end of what is printed.
    assert VERDICT.search(shown[rates[-1]]) or VERDICT.search(shown[-1])


def test_a_load_of_loops_is_marked_and_fails(
    micro_artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(micro_artifacts["dense"], engine={"max_context": 2048}) as server:
        server.scripts.texts["story"] = LOOP * 100
        words = COMMANDS["bench serve"](micro_artifacts["dense"], server.url, tmp_path)
        words += ["--output-tokens", "300", "--ttft-ms", "600000", "--fail-under", "1"]
        assert main(words) == 1
    text = capsys.readouterr().out
    assert "0 of 2 responses are usable; 2 LOOP" in text
    assert "goodput: 0.000 requests/s" in text and " 0.0 tok/s of usable answers" in text
