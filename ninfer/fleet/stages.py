"""Stages on a machine: each runs there by itself, leaves evidence, and is followed from here.

A stage is a shell script in `stages/` of the machine's folder. It goes on when our link or our
process is gone; one lock lets only one stage run at a time, whoever started it. Its evidence is
`NAME.end`: exit status, fingerprint of the script, and the call that started it.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ninfer.errors import HostBrokenError, TimeLimitError, VerificationError
from ninfer.fleet.box import Box, Ran
from ninfer.fleet.clock import Clock
from ninfer.fleet.failures import NO_SSH

# How a script says whose fault it is; any other failure would come again on another machine.
MACHINE: Final = 6
POLL: Final = 1.0
_LINK_TRIES: Final = 6
_LINK_PAUSE: Final = 5.0
_LINES: Final = 5
# Numbers of what a poll prints, one a line; the log's end follows.
_FACTS: Final = 3


@dataclass(frozen=True, slots=True)
class Stage:
    """One step. `holds` is a shell test of its effect; `quiet` the seconds it may be without news.

    What the script depends on stands in its text, so that another kit or model is another stage.
    """

    name: str
    script: str
    holds: str = "true"
    quiet: float = 600.0

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits of what it does."""
        return hashlib.sha256(self.script.encode()).hexdigest()[:16]


class Link:
    """A machine's folder over a connection that is opened anew when it breaks.

    Commands start in the folder, and may run twice when the link breaks: they must bear that.
    `opening` resolves the address, each time anew.
    """

    def __init__(
        self,
        opening: Callable[[], Box],
        folder: str,
        clock: Clock,
        say: Callable[[str], None],
        tries: int = _LINK_TRIES,
    ) -> None:
        self.clock: Final = clock
        self.say: Final = say
        self.folder: Final = folder
        self._opening = opening
        self._tries = tries
        self._box: Box | None = None

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        """Run a command in the folder. Raises HostBrokenError when the link stays broken."""
        text = f'umask 077; mkdir -p "$HOME"/{self.folder} && cd "$HOME"/{self.folder} || exit 1\n'
        failure: HostBrokenError | None = None
        for attempt in range(self._tries):
            if attempt:
                self.clock.sleep(_LINK_PAUSE)
            try:
                if self._box is None:
                    self._box = self._opening()
                ran = self._box.run(text + command, stdin=stdin, timeout=timeout)
            except HostBrokenError as error:
                failure = error
                self.say(f"{error}; trying again")
                self.close()
                continue
            if ran.status != -1:
                return ran
            failure = HostBrokenError(
                f"a command got no answer within {timeout:g} s", category=NO_SSH.category
            )
            self.close()
        assert failure is not None
        raise failure

    def need(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> str:
        """The output of a command that must succeed. Raises HostBrokenError with its words."""
        ran = self.run(command, stdin=stdin, timeout=timeout)
        if ran.status:
            said = " ".join(ran.err.split())[-300:] or f"status {ran.status}"
            raise HostBrokenError(f"the machine refuses: {said}", category="")
        return ran.out

    def close(self) -> None:
        """End the connection; the next command opens another."""
        box, self._box = self._box, None
        if box is None:
            return
        try:
            box.close()
        except (OSError, HostBrokenError):
            return  # it was broken


@dataclass(frozen=True, slots=True)
class _Look:
    """A stage as one poll finds it."""

    status: int | None  # None: no evidence
    call: str
    holds: bool
    busy: bool
    size: int
    tail: str


def complete(link: Link, stage: Stage) -> bool:
    """Bring a stage to its end; False if its evidence was there already and holds.

    Raises HostBrokenError when the machine is at fault or loses the stage again and again,
    VerificationError when the stage's content is, TimeLimitError without news for too long.
    """
    call, starts = secrets.token_hex(4), 0
    link.need(f"mkdir -p stages && cat > stages/{stage.name}.{call}", stdin=stage.script)
    seen, news = (-1, ""), link.clock.now()
    while True:
        look = _look(link, stage)
        if look.status == 0 and look.holds:
            link.run(f"rm -f stages/{stage.name}.{call}")
            return starts > 0
        if look.call == call and look.status is not None:
            _fail(stage, look)
        if not look.busy:
            if starts == 3:
                raise HostBrokenError(f"{stage.name}: the machine lost it three times", category="")
            link.need(_start(stage, call))
            starts += 1
        elif (look.size, look.tail) != seen:
            seen, news = (look.size, look.tail), link.clock.now()
            if look.tail:
                link.say(f"{stage.name}: {look.tail.splitlines()[-1][-200:]}")
        if link.clock.now() - news > stage.quiet:
            raise TimeLimitError(
                f"{stage.name}: no news for {stage.quiet:.0f} s; 'ninfer ssh' shows why"
            )
        link.clock.sleep(POLL)


def _start(stage: Stage, call: str) -> str:
    """Start detached, with the lock that this command takes; without effect while it is held."""
    name = f"stages/{stage.name}"
    inner = (
        f"rm -f {name}.end; mv {name}.{call} {name}.sh 2>/dev/null; "
        f"sh {name}.sh > {name}.log 2>&1; "
        f'echo "$? {stage.fingerprint} {call}" > {name}.new && mv {name}.new {name}.end'
    )
    return (
        "exec 9> stages/lock; flock -n 9 || exit 0; "
        f"setsid sh -c '{inner}' < /dev/null > /dev/null 2>&1 &"
    )


def _look(link: Link, stage: Stage) -> _Look:
    name = f"stages/{stage.name}"
    out = link.need(
        f"if flock -n stages/lock true; then echo free; else echo busy; fi; "
        f"cat {name}.end 2>/dev/null || echo; "
        f"if {stage.holds}; then echo holds; else echo not; fi; "
        f"if [ -e {name}.log ]; then stat -c %s {name}.log; "
        f"tail -c 2000 {name}.log | tr '\\r' '\\n' | tail -n {_LINES}; else echo 0; fi"
    )
    lines = out.split("\n")
    words = lines[1].split()
    mine = len(words) == _FACTS and words[1] == stage.fingerprint
    return _Look(
        status=int(words[0]) if mine else None,
        call=words[2] if mine else "",
        holds=lines[2] == "holds",
        busy=lines[0] == "busy",
        size=int(lines[3]),
        tail="\n".join(line for line in lines[4:] if line.strip()),
    )


def _fail(stage: Stage, look: _Look) -> None:
    said = " ".join(look.tail.split())[-400:] or f"status {look.status}"
    if look.status == MACHINE:
        raise HostBrokenError(f"{stage.name}: {said}", category=stage.name)
    if look.status == 0:
        raise VerificationError(f"{stage.name}: it ended well and left nothing that holds")
    raise VerificationError(f"{stage.name}: {said}")
