"""Requirements of a wheel, every one with its version and hash, as pip would install them here."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from ninfer.errors import KitError

_LIMIT_S: Final = 600


def lock_of(wheel: Path) -> str:
    """Lines for `pip install --require-hashes -r`, from what pip's index answers for this Python.

    Raises KitError when it does not answer, or names something without a hash.
    """
    with tempfile.TemporaryDirectory(prefix="ninfer-lock-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--report", str(report), f"{wheel.resolve()}[cuda]"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise KitError(f"pip did not answer within {_LIMIT_S} s; use --lock FILE") from None
        if done.returncode:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise KitError(f"pip cannot resolve the requirements ({last}); use --lock FILE")
        return lock_text(json.loads(report.read_text(encoding="utf-8")))


def lock_text(report: dict[str, Any]) -> str:
    """The lines of an installation report (pip's documented format, version 1)."""
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        if name == "ninfer":
            continue
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if digest is None:
            raise KitError(f"{name} {version} has no hash in pip's report; use --lock FILE")
        lines.append(f"{name.lower()}=={version} --hash=sha256:{digest}\n")
    return "".join(sorted(lines))
