"""`ninfer bench start`: order of the marks, units, and what a start may import."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ninfer.bench import Report, start
from ninfer.cli.main import main
from ninfer.engine import EngineOptions
from ninfer.errors import GenerationError

# Packages that an engine has no use for before it runs kernels.
UNWANTED = ("transformers", "fastapi", "uvicorn", "safetensors", "huggingface_hub", "triton")


def test_figures_follow_from_the_marks(
    monkeypatch: pytest.MonkeyPatch, micro_artifacts: dict[str, Path]
) -> None:
    path = micro_artifacts["dense"]
    size = path.stat().st_size
    starts = iter(
        {"imported": 1.0 + n, "loaded": 3.0 + n, "first": 4.0 + n, "bytes": 4e9} for n in range(4)
    )

    def seconds(code: str, given: str) -> Any:
        return {"at": 0.5} if not given else next(starts)

    monkeypatch.setattr(start, "_seconds", seconds)
    monkeypatch.setattr(start, "_read_seconds", lambda path: 0.25)
    imports, first, load = start.measure_start(EngineOptions(path), {}, 3)
    # The first of the four starts is not counted.
    assert (imports.low, imports.value, imports.high) == (2000, 3000, 4000)
    assert imports.reference == 500 and first.reference == 750
    assert (first.value, first.unit, load.unit) == (6000, "ms", "GB/s")
    assert load.value == 2.0 and load.reference == pytest.approx(size / 0.25e9)


@pytest.mark.e2e
def test_a_start_is_measured(
    micro_artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "start.json"
    words = ["bench", "start", str(micro_artifacts["dense"]), "--device", "cpu", "--repeats", "1"]
    assert main([*words, "--record", str(record)]) == 0
    rows = Report.from_json(record.read_text()).rows
    assert [row.unit for row in rows] == ["ms", "ms", "GB/s"]
    assert 0 < rows[0].value < rows[1].value and rows[2].value > 0
    with pytest.raises(GenerationError, match=r"the measured process failed: .*no-such"):
        start.measure_start(EngineOptions(tmp_path / "no-such.ninfer"), {}, 1)


def test_a_start_imports_no_more_than_it_needs() -> None:
    code = "import json, sys; import ninfer.engine; ninfer.engine.Engine; "
    code += "print(json.dumps(sorted(sys.modules)))"
    found = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    assert "ninfer.engine.engine" in found
    loaded = {name.split(".")[0] for name in found}
    assert not loaded.intersection(UNWANTED), loaded.intersection(UNWANTED)
