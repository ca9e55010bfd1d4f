"""The dead-man: a script that a machine runs from birth and that destroys it when its time is up.

It needs nobody: the key in the container's environment ends this one machine only. Files below
`/root/.ninfer`, each a number of seconds since 1970 unless said otherwise: `lease` and `end`, of
which the earlier one is the end; `active`, whose age is the idleness once a server runs; `beat`,
the last look; `armed`, `yes` or why not.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ninfer.errors import VerificationError
from ninfer.fleet.box import Box

FOLDER: Final = "/root/.ninfer"
# How long a machine may take from its start to the first renewal of its lease.
GRACE: Final = 45 * 60
HOST_KEY: Final = "ninfer-hostkey"
# The vendor's limit for the script of a start.
MOST_CHARACTERS: Final = 4096
_STALE_BEAT: Final = 90
_ARM_TRIES: Final = 24
_ARM_PAUSE: Final = 5.0

# Numbers come as arguments: folder, API, grace, life, idle, pause. The key goes to curl by its
# standard input, since others on the machine can read command lines.
_LOOP: Final = r"""
D=$1 API=$2 GRACE=$3 LIFE=$4 IDLE=$5 PAUSE=$6
now() { date +%s; }
put() { echo "$2" > "$D/$1.new" && mv "$D/$1.new" "$D/$1"; }
val() { v=$(cat "$D/$1" 2>/dev/null); case $v in ''|*[!0-9]*) echo 0;; *) echo "$v";; esac; }
born=$(now); first=$((born + GRACE))
[ "$(val end)" -gt 0 ] || put end $((born + LIFE))
[ "$(val lease)" -ge $first ] || put lease $first
if [ -z "$API" ]; then put armed yes
elif [ -z "$CONTAINER_API_KEY" ] || [ -z "$CONTAINER_ID" ]; then put armed "no key in the container"
else
  command -v curl >/dev/null || { apt-get -o DPkg::Lock::Timeout=300 -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y \
      --no-install-recommends install curl ca-certificates; }
  command -v curl >/dev/null && put armed yes || put armed "no curl"
fi
rm -f "$D/active"
while :; do
  t=$(now) limit=$(val lease) end=$(val end)
  [ $end -ge $first ] || end=$first
  [ $limit -le $end ] || limit=$end
  if [ -e "$D/active" ]; then
    idle=$(($(date -r "$D/active" +%s) + IDLE)); [ $limit -le $idle ] || limit=$idle
  fi
  if [ $t -ge $limit ]; then
    echo "$t: past $limit, ending this machine"
    [ -n "$API" ] || exit 0
    printf 'header = "Authorization: Bearer %s"\n' "$CONTAINER_API_KEY" |
      curl -sS -m 20 -K - -X DELETE "$API/api/v0/instances/$CONTAINER_ID/"
  fi
  put beat $t
  sleep "$PAUSE"
done
"""


@dataclass(frozen=True, slots=True)
class DeadMan:
    """Seconds: `life` until the end, `idle` without a request, `grace` until the first renewal.

    Without an `api` the script stays in the foreground and its end is the machine's: something on
    the machine ends it when its job is over.
    """

    api: str
    life: float
    idle: float
    grace: float = GRACE
    pause: float = 15
    folder: str = FOLDER

    def script(self) -> str:
        """What the container runs at every start; it prints the host keys for us to pin."""
        numbers = " ".join(f"{int(n)}" for n in (self.grace, self.life, self.idle))
        folder, api = shlex.quote(self.folder), shlex.quote(self.api)
        text = (
            f"umask 077; mkdir -p {folder}; rm -f {folder}/armed {folder}/beat\n"
            f"cat > {folder}/deadman <<'NINFER'{_LOOP}NINFER\n"
            # A machine that was provisioned serves again when it comes back.
            f"[ ! -e {folder}/start ] || sh {folder}/start\n"
        )
        call = f"sh {folder}/deadman {folder} {api} {numbers} {self.pause:g}"
        if self.api:
            text += (
                f"setsid {call} >> {folder}/deadman.log 2>&1 < /dev/null &\n"
                f'for k in /etc/ssh/ssh_host_*_key.pub; do echo "{HOST_KEY} $(cat $k)"; done\n'
            )
        else:
            text += f"{call}\n"
        assert len(text) <= MOST_CHARACTERS, len(text)
        return text


def check_armed(box: Box, sleep: Callable[[float], None]) -> None:
    """Wait until the dead-man looks at the clock and can end the machine.

    Raises VerificationError with the machine's own words when it cannot or does not run.
    """
    said = ""
    for _ in range(_ARM_TRIES):
        ran = box.run(
            f"cat {FOLDER}/armed; echo; echo $(($(date +%s) - $(cat {FOLDER}/beat || echo 0)))"
        )
        words = ran.out.split("\n")
        said = words[0].strip() or ran.err.strip()
        if said == "yes" and words[-2:-1] and words[-2].isdigit() and int(words[-2]) < _STALE_BEAT:
            return
        if said.startswith("no "):
            break
        sleep(_ARM_PAUSE)
    raise VerificationError(f"the machine cannot end itself: {said or 'no word from its dead-man'}")


def renew(box: Box, lease: float, life: float | None = None) -> None:
    """Give the machine `lease` more seconds from now; `life` sets a new end as well.

    The machine's own clock counts. Raises VerificationError when the files cannot be written.
    """
    parts = [("lease", lease), *([("end", life)] if life is not None else [])]
    command = " && ".join(
        f"echo $(($(date +%s) + {int(seconds)})) > {FOLDER}/{name}.set"
        f" && mv {FOLDER}/{name}.set {FOLDER}/{name}"
        for name, seconds in parts
    )
    ran = box.run(command)
    if ran.status != 0:
        raise VerificationError(f"the machine's lease was not renewed: {ran.err.strip()[:200]}")
