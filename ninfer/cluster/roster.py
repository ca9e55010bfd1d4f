"""The replicas that a gateway knows: their reports, what it has sent them, and which to take."""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ninfer.cluster.choice import AFFINITY, LEAST, loads_of
from ninfer.cluster.prefixes import Homes
from ninfer.cluster.report import Report
from ninfer.errors import UnavailableError

# A replica reports four times a second.
_SILENT_SECONDS: Final = 5.0


@dataclass(slots=True)
class Member:
    """A replica as the gateway sees it."""

    report: Report
    active: int = 0
    sent: int = 0
    # The report up to which it counts as gone, since it could not be reached or did not serve.
    gone_until: int = -1
    heard: float = 0.0  # when its latest report came, by the gateway's clock

    @property
    def usable(self) -> bool:
        """Whether requests may go there."""
        return self.report.serves and self.report.beat > self.gone_until


class Roster:
    """All replicas. One event loop uses it."""

    def __init__(
        self,
        routing: str,
        *,
        wait: float,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wait` is the seconds for which a request waits while no replica serves."""
        self._routing: Final = routing
        self._wait: Final = wait
        self._clock: Final = clock
        self._random: Final = random.Random(seed)
        self._homes: Final = Homes()
        self._members: dict[str, Member] = {}
        self._changed = asyncio.Event()
        self.routed: Final = {"home": 0, "new": 0, "away": 0}

    @property
    def members(self) -> list[Member]:
        """All that have reported, by name."""
        return [self._members[name] for name in sorted(self._members)]

    @property
    def usable(self) -> list[Member]:
        """Those that serve. Silent ones are left out, unless all are: then the machine stalls."""
        able = [member for member in self.members if member.usable]
        now = self._clock()
        return [member for member in able if now - member.heard < _SILENT_SECONDS] or able

    def update(self, reports: Iterable[Report]) -> None:
        """The latest reports, all of them; who is not among them has left."""
        told = {report.replica: report for report in reports}
        self._members = {
            name: self._members.get(name, Member(report)) for name, report in told.items()
        }
        now = self._clock()
        for name, report in told.items():
            member = self._members[name]
            if report.beat != member.report.beat or not member.heard:
                member.heard = now
            member.report = report
        self._changed.set()
        self._changed = asyncio.Event()

    def gone(self, member: Member) -> None:
        """It cannot be reached, or says that it does not serve: not again before it reports."""
        # A report of the moment of its death may still be on the way.
        member.gone_until = member.report.beat + 1

    def know(self, digests: Sequence[bytes], member: Member) -> None:
        """The replica holds these beginnings now."""
        self._homes.note(digests, member.report.replica)

    async def pick(
        self, digests: Sequence[bytes], without: Collection[str], *, wait: bool = True
    ) -> Member:
        """A replica for a request that begins so, not one of `without` while there are others.

        Raises UnavailableError when none serves, or none but those, within the time for that.
        """
        end = asyncio.get_running_loop().time() + self._wait
        while True:
            able = [m for m in self.usable if m.report.replica not in without]
            if able:
                return self._choose(digests, able)
            left = end - asyncio.get_running_loop().time()
            if left <= 0 or not wait:
                raise UnavailableError("no replica serves now; try again later")
            changed = self._changed
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                continue

    def state(self) -> list[dict[str, Any]]:
        """Plain data of every replica, for people."""
        serving = [member.report.replica for member in self.usable]
        return [
            {
                "replica": member.report.replica,
                "artifact": member.report.artifact,
                "url": member.report.url,
                "pid": member.report.pid,
                "serves": member.report.replica in serving,
                "requests": member.active,
                "places": member.report.places,
                **member.report.load,
            }
            for member in self.members
        ]

    def _choose(self, digests: Sequence[bytes], able: list[Member]) -> Member:
        names = [member.report.replica for member in able]
        home = self._homes.find(digests, names)
        if self._routing == AFFINITY:
            loads = loads_of(
                [(member.active, member.sent) for member in able],
                max(member.report.places for member in able),
            )
            chosen = able[loads.choose(None if home is None else names.index(home))]
        elif self._routing == LEAST:
            chosen = min(able, key=lambda member: (member.active, member.sent))
        else:
            chosen = self._random.choice(able)
        if digests:
            at_home = chosen.report.replica == home
            self.routed["new" if home is None else "home" if at_home else "away"] += 1
        return chosen
