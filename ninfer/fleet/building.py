"""A kit built on the machine: source sent, `ninfer kit build` started, and followed to its end.

A Python that lacks what compiles gets an environment of its own for that.
"""

import shlex
from dataclasses import dataclass
from typing import Final

from ninfer.errors import ExistsError, HostBrokenError, TimeLimitError, VerificationError
from ninfer.fleet.box import Box
from ninfer.fleet.clock import Clock
from ninfer.fleet.source import Source

# Below the home folder, in which a command over ssh starts.
FOLDER: Final = ".ninfer"
BUILD_LOG: Final = f"{FOLDER}/build.log"
POLL: Final = 20.0
_SEND_SECONDS: Final = 900.0

# Arguments: architecture, address of the source, ref. Python as `bin/ninfer` of a kit finds it.
# `build.end` is written last and at once: a status that is there is whole.
_SCRIPT: Final = r"""
cd "$HOME/.ninfer" || exit 1
end=$PWD/build.end
finish() { echo "$1 ${2:-}" > "$end.new"; mv "$end.new" "$end"; exit "$1"; }
trap 'finish 143' TERM
set -x
rm -rf src dist.new
git init -q src && cd src && git fetch -q --depth 1 "$2" "$3" && git checkout -q FETCH_HEAD ||
  finish 1
py=${NINFER_PYTHON:-}
[ -n "$py" ] || { [ ! -x "$HOME/.ninfer/venv/bin/python" ] || py=$HOME/.ninfer/venv/bin/python; }
py=${py:-python3}
# The source alone compiles nothing.
if [ -f pyproject.toml ] && ! "$py" -c 'import torch, triton' 2>/dev/null; then
  env=$HOME/.ninfer/build-venv
  [ -x "$env/bin/python" ] || python3 -m venv "$env" || finish 1
  "$env/bin/python" -m pip install -q --disable-pip-version-check --no-input '.[cuda]' build ||
    finish 1
  py=$env/bin/python
fi
"$py" -m ninfer kit build --architecture "$1" --output ../dist.new || finish $?
cd .. && rm -rf dist && mv dist.new dist || finish 1
kit=$(ls dist | grep '\.kit\.tar\.gz$')
finish 0 "dist/$kit $(sha256sum "dist/$kit" | cut -d' ' -f1) $(wc -c < "dist/$kit")"
"""
# A build of the past must not be taken for this one, nor may two run at once.
_START: Final = r"""
umask 077; mkdir -p "$HOME/.ninfer" && cd "$HOME/.ninfer" || exit 1
if [ -e build.pid ] && [ ! -e build.end ] && kill -0 "$(cat build.pid)" 2>/dev/null; then
  echo taken; exit 0
fi
rm -f build.end; cat > build.sh
nohup setsid sh build.sh {words} > build.log 2>&1 < /dev/null &
echo $! > build.pid; echo started
"""
_LOOK: Final = r"""
cd "$HOME/.ninfer" || exit 1
[ ! -e active ] || touch active
if [ -e build.end ]; then echo "end $(cat build.end)"
elif kill -0 "$(cat build.pid)" 2>/dev/null; then echo runs
elif [ -e build.end ]; then echo "end $(cat build.end)"
else echo gone; fi
tail -n 1 build.log
"""


@dataclass(frozen=True, slots=True)
class BuiltKit:
    """A kit on a machine: its path below the home folder, SHA-256 and bytes."""

    path: str
    sha256: str
    size: int


def start_build(box: Box, name: str, architecture: int, source: Source) -> None:
    """Send the source and start the build, which goes on when the link breaks.

    Raises ExistsError while another one runs there, HostBrokenError if it cannot be started.
    """
    url = source.url
    if not url:
        _checked(
            box,
            name,
            'umask 077; mkdir -p "$HOME/.ninfer" && cd "$HOME/.ninfer" && rm -rf source.git && '
            "base64 -d | tar -xf -",
            source.packed,
            _SEND_SECONDS,
        )
        url = "../source.git"
    words = shlex.join([str(architecture), url, source.ref])
    if "taken" in _checked(box, name, _START.replace("{words}", words), _SCRIPT).split():
        raise ExistsError(f"{name}: a build runs there already; 'ninfer log-build' follows it")


def wait_build(box: Box, name: str, clock: Clock, limit: float) -> BuiltKit:
    """Wait up to `limit` seconds for the end of the build. The machine does not count as idle.

    Raises VerificationError when the build failed, HostBrokenError when it vanished, TimeLimitError
    when it still runs.
    """
    end = clock.now() + limit
    while True:
        state, _, last = _checked(box, name, _LOOK).partition("\n")
        if state.startswith("end"):
            return _ended(name, state.split()[1:], last.strip())
        if state == "gone":
            raise HostBrokenError(
                f"{name}: the build was killed; its last line: {last.strip()[:200]}", category=""
            )
        if clock.now() >= end:
            raise TimeLimitError(
                f"{name}: the build still runs after {limit / 60:.0f} minutes: "
                f"{last.strip()[:200]}; 'ninfer log-build' follows it"
            )
        clock.sleep(POLL)


def built_kit(box: Box, name: str) -> BuiltKit:
    """The kit that lies on the machine. Raises VerificationError when there is none."""
    state = _checked(
        box, name, '[ ! -e "$HOME/.ninfer/build.end" ] || cat "$HOME/.ninfer/build.end"'
    )
    if not state.split():
        raise VerificationError(f"{name}: no kit was built there; 'ninfer build' makes one")
    return _ended(name, state.split(), "see 'ninfer log-build'")


def _ended(name: str, words: list[str], last: str) -> BuiltKit:
    if words[:1] == ["0"] and len(words) == 4 and words[3].isdigit():
        return BuiltKit(f"{FOLDER}/{words[1]}", words[2], int(words[3]))
    raise VerificationError(
        f"{name}: the build failed with status {words[0] if words else 'unknown'}: {last[:200]}; "
        "'ninfer log-build' shows all of it"
    )


def _checked(
    box: Box, name: str, command: str, stdin: str | bytes = "", timeout: float = 60.0
) -> str:
    ran = box.run(command, stdin=stdin, timeout=timeout)
    if ran.status != 0:
        said = " ".join(ran.err.split())[:200]
        raise HostBrokenError(f"{name}: status {ran.status}: {said}", category="")
    return ran.out
