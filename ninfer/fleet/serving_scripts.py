"""Shell that keeps a server running on a machine: one supervisor, its start, and its stop."""

from typing import Final

# Deaths in a row, each within a minute of the start, after which it is left alone.
QUICK_DEATHS: Final = 5

SUPERVISE: Final = f"""cd "$(dirname "$0")" || exit 1
stop=; trap 'stop=1' TERM INT
quick=0
while [ -z "$stop" ]; do
  set --
  while IFS= read -r word; do set -- "$@" "$word"; done < serve.argv
  size=$(stat -c %s serve.log 2>/dev/null || echo 0)
  [ "$size" -lt 50000000 ] || mv serve.log serve.log.1
  echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) starting" >> serve.log
  began=$(date +%s)
  "$@" >> serve.log 2>&1 < /dev/null &
  child=$!
  wait $child; status=$?
  # A signal ends the wait and not yet the server, which drains.
  while kill -0 $child 2>/dev/null; do wait $child; status=$?; done
  echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) ended with status $status" >> serve.log
  [ -z "$stop" ] || break
  case $status in 0) break;; 2) echo $status > serve.gave-up; break;; esac
  if [ $(($(date +%s) - began)) -ge 60 ]; then quick=0; fi
  quick=$((quick + 1))
  if [ $quick -ge {QUICK_DEATHS} ]; then echo $status > serve.gave-up; break; fi
  sleep $((quick * 2)) 9>&- & wait $!
done
"""

# Supervisor and server inherit the lock: it is free only when both are gone. The machine's start
# runs this too, so that a server comes back with its machine. Zombies, which nobody collects in
# some containers, still take signals, so the state is looked at.
START: Final = """cd "$(dirname "$0")" || exit 1
exec 9> serve.lock
if ! flock -n 9; then
  state=$(cut -d' ' -f3 "/proc/$(cat serve.pid)/stat" 2>/dev/null)
  case $state in ''|[ZX]) sh ./stop 9>&- && flock -n 9 || exit 1;; *) exit 0;; esac
fi
rm -f serve.gave-up
setsid sh "$PWD/supervise" > /dev/null 2>&1 < /dev/null &
echo $! > serve.pid
"""

# Waits for requests under way, which the server gives 30 s; then it is killed.
STOP: Final = """cd "$(dirname "$0")" || exit 1
[ -e serve.lock ] || exit 0
flock -n serve.lock true && exit 0
pid=$(cat serve.pid 2>/dev/null)
case $pid in ''|*[!0-9]*) echo "serve.pid: no process number" >&2; exit 1;; esac
kill -TERM "-$pid" 2>/dev/null
flock -w 45 serve.lock true && exit 0
kill -KILL "-$pid" 2>/dev/null
flock -w 10 serve.lock true
"""

# Memory of the supervisor's session in MiB, and that of the card.
MEMORY: Final = """pid=$(cat serve.pid) || exit 1
total=0
for process in /proc/[0-9]*; do
  read -r stat < "$process/stat" 2>/dev/null || continue
  set -- ${stat##*) }
  [ "$4" = "$pid" ] || continue
  kib=$(sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' "$process/status" 2>/dev/null)
  total=$((total + ${kib:-0}))
done
echo $((total / 1024))
if command -v nvidia-smi > /dev/null; then
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1
else echo 0; fi
"""
