"""EvalScope in a process of its own: the Python that has it, and a run of it."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ninfer.errors import ServerError, UsageError
from ninfer.evals.evalscope_suites import EvalScopeRun

_CHILD: Final = Path(__file__).with_name("evalscope_child.py")
# Ways in which an import that fails is told.
_MISSING: Final = "No module named 'evalscope'"


def python_with_evalscope(python: Path | None) -> Path:
    """The Python to run EvalScope by: `python`, else this one. Raises UsageError without it."""
    if python is not None:
        if not python.is_file():
            raise UsageError(f"--evalscope {python}: is no file; give the path of a Python")
        return python
    if find_spec("evalscope") is None:
        raise UsageError(
            "EvalScope is not installed: run \"pip install 'ninfer[evals]'\", or name the Python "
            "of an environment that has it by --evalscope"
        )
    return Path(sys.executable)


def run_evalscope(run: EvalScopeRun, python: Path, key: str | None) -> None:
    """Let EvalScope ask and grade; its own output goes to standard error.

    Raises ServerError when it ends with an error, which it has then printed.
    """
    text = f"{key or ''}\n{json.dumps(run.task())}"
    done = subprocess.run(
        # -P and a path: the folder of the script must not be where modules are sought.
        [str(python), "-P", str(_CHILD)],
        input=text,
        stdout=2,  # the tables of this command are alone on standard output
        text=True,
        check=False,
    )
    if done.returncode:
        raise ServerError(
            f"{python}: EvalScope ended with status {done.returncode}; the reason is above. What "
            f"was answered until then is in {run.results}"
        )
