"""The two scripts of a kit: they run its package and its kernels where they lie."""

from typing import Final

_TEXT: Final = """#!/bin/sh
# Runs the ninfer of this kit with its compiled kernels. Python and the packages of
# requirements.lock come from NINFER_PYTHON, the kit's own venv/, or the first python3.
here=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd) || exit 1
python=${NINFER_PYTHON:-$here/venv/bin/python}
[ -x "$python" ] || [ -n "$NINFER_PYTHON" ] || python=python3
command -v "$python" > /dev/null || { echo "ninfer: error: $python not found; set NINFER_PYTHON" >&2; exit 2; }
export NINFER_KIT="$here" PYTHONPATH="$here/lib${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
exec "$python" -P -m ninfer COMMAND"$@"
"""  # noqa: E501 - a shell script has its own lines

SCRIPTS: Final = {
    "bin/ninfer": _TEXT.replace("COMMAND", ""),
    "bin/ninfer-serve": _TEXT.replace("COMMAND", "serve "),
}
