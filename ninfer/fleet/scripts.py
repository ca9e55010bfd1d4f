"""Shell of each stage on a machine. Exit status 6 says that the machine is at fault.

Scripts run in the machine's folder and may run again at any point: what they make appears under
its name only when it is whole.
"""

import shlex
from typing import Final

from ninfer.fleet.plans import Plan
from ninfer.fleet.stages import MACHINE, Stage

PACKAGES_QUIET: Final = 900.0
# What a download may be silent for; curl and the hub's client try again by themselves.
_DOWNLOAD_QUIET: Final = 600.0

_SYSTEM: Final = f"""missing=
for word in $NEEDED; do
  case $word in
    venv) python3 -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv";;
    cc) command -v cc >/dev/null || missing="$missing gcc libc6-dev";;
    *) command -v $word >/dev/null || missing="$missing $word";;
  esac
done
[ -n "$missing" ] || {{ echo "nothing is missing"; exit 0; }}
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || {{
  echo "missing:$missing; install them, only root may"; exit {MACHINE}; }}
echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
# The machine's own start may be installing too: its lock is waited for, not broken.
for try in 1 2 3; do
  apt-get -o DPkg::Lock::Timeout=600 -q update &&
    apt-get -o DPkg::Lock::Timeout=600 -q -y --no-install-recommends install $missing && exit 0
  sleep 5
done
echo "apt-get does not install$missing"; exit {MACHINE}
"""

# A file with a header that a download needs and that no command line may show.
HEADER: Final = "kit.header"

_DOWNLOAD: Final = f"""part=kit.download.$ID
set --
[ ! -e "{HEADER}" ] || set -- -H "@{HEADER}"
for try in 1 2 3 4 5 6; do
  curl -fSL --retry 3 --connect-timeout 20 --speed-limit 1000 --speed-time 60 -C - \\
    -o "$part" "$@" "$URL" && break
  status=$?
  # 33 and 22 with 416: the server cannot go on from the middle, or there is no more.
  case $status in 33) rm -f "$part";; 22) [ ! -e "$part" ] || break;; esac
  [ $try -lt 6 ] || {{ echo "$URL: curl status $status"; exit {MACHINE}; }}
  sleep 3
done
echo "$SHA  $part" | sha256sum -c --status || {{
  echo "$URL: its SHA-256 is $(sha256sum < "$part" | cut -c1-64), not $SHA"
  rm -f "$part"; exit 8; }}
rm -f "{HEADER}"
mv "$part" "kit.$ID.tar.gz"
"""

_UNPACK: Final = """echo "$SHA  kit.$ID.tar.gz" | sha256sum -c --status || {
  echo "kit.$ID.tar.gz: another SHA-256 than $SHA"; rm -f "kit.$ID.tar.gz"; exit 8; }
rm -rf "kits/$ID.new"; mkdir -p "kits/$ID.new"
python3 - "kit.$ID.tar.gz" "kits/$ID.new" <<'END' || exit 8
import sys, tarfile
with tarfile.open(sys.argv[1]) as tar:
    tar.extractall(sys.argv[2], filter="data")
END
[ -x "kits/$ID.new/bin/ninfer" ] || { echo "no kit: it holds no bin/ninfer"; exit 8; }
grep -q "\\"architecture\\": *$ARCH[,}]" "kits/$ID.new/MANIFEST.json" || [ $ARCH = 0 ] || {
  echo "the kit is not for sm_$ARCH, which the card is"; exit 8; }
rm -rf "kits/$ID"; mv "kits/$ID.new" "kits/$ID"
ln -sfn "kits/$ID" kit.new && mv -T kit.new kit
rm -f "kit.$ID.tar.gz"
"""

_VENV: Final = f"""lock=$(sha256sum < kit/requirements.lock | cut -c1-16)
if [ ! -e "venvs/$lock/whole" ]; then
  python3 -m venv "venvs/$lock" || exit {MACHINE}
  for try in 1 2 3; do
    "venvs/$lock/bin/python" -m pip install --disable-pip-version-check --no-input \\
      --retries 5 --require-hashes --only-binary :all: -r kit/requirements.lock && break
    [ $try -lt 3 ] || {{ echo "pip cannot install the kit's packages"; exit {MACHINE}; }}
    sleep 5
  done
  : > "venvs/$lock/whole"
fi
ln -sfn "venvs/$lock" venv.new && mv -T venv.new venv
"""

_PROVE: Final = """NINFER_PYTHON=$PYTHON kit/bin/ninfer --version || exit 8
NINFER_PYTHON=$PYTHON kit/bin/ninfer kit info kit > kit.info || { cat kit.info; exit 8; }
: > "proved.$ID"
"""

_FETCH: Final = f"""for try in 1 2 3 4 5; do
  path=$(NINFER_PYTHON=$PYTHON kit/bin/ninfer fetch "$MODEL" --directory models) && break
  [ $try -lt 5 ] || {{ echo "$MODEL: not fetched"; exit {MACHINE}; }}
  sleep 5
done
echo "$path" > artifact.new && mv artifact.new "artifact.$MODEL"
"""


def stages_of(plan: Plan) -> list[Stage]:
    """What runs by itself on the machine, in order; a local kit and artifact are there before."""
    python = plan.python or "venv/bin/python"
    names = {
        "ID": plan.kit.id,
        "SHA": plan.kit.sha256,
        "URL": plan.kit.url,
        "ARCH": str(plan.architecture),
        "PYTHON": python,
        "MODEL": plan.model.name,
        "NEEDED": needed(plan),
    }
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in names.items())
    unpacked = f"[ -x kits/{plan.kit.id}/bin/ninfer ] && [ kit -ef kits/{plan.kit.id} ]"
    proved = f"[ -e proved.{plan.kit.id} ]"
    fetch = "" if plan.kit.file else _DOWNLOAD
    make = "" if plan.python else _VENV
    stages = [
        Stage("system", head + _SYSTEM, quiet=PACKAGES_QUIET),
        Stage("kit", head + fetch + _UNPACK, unpacked, _DOWNLOAD_QUIET),
        Stage("python", head + make + _PROVE, proved, PACKAGES_QUIET),
    ]
    if not plan.model.packaged and plan.artifact is None:
        there = f'[ -e "$(cat artifact.{plan.model.name} 2>/dev/null)" ]'
        stages.append(Stage("artifact", head + _FETCH, there, _DOWNLOAD_QUIET))
    return stages


def needed(plan: Plan) -> str:
    """Programs that the machine must have. Triton compiles its launchers there, with a card."""
    words = ["curl", "python3"]
    if not plan.python:
        words.append("venv")
    if plan.architecture:
        words.append("cc")
    if plan.kit.build is not None:
        words.append("git")
    return " ".join(words)
