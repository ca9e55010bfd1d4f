"""The directory: one small process of the cluster where replicas report and the gateway looks."""

import time
from collections.abc import Callable
from typing import Final

from ninfer.cluster.report import ReplicaSpec, Report

NAME: Final = "ninfer-directory"
NAMESPACE: Final = "ninfer"
# A replica that has said nothing for so long is dropped. Long, since a stalled machine is no dead
# one: the gateway finds out by itself who cannot be reached.
_SILENT_SECONDS: Final = 120.0


class Directory:
    """Latest reports, and what replicas are made by."""

    def __init__(self, spec: ReplicaSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._clock: Final = clock
        self._reports: Final[dict[str, tuple[float, Report]]] = {}

    def report(self, report: Report) -> None:
        """Take a replica's report."""
        self._reports[report.replica] = (self._clock(), report)

    def leave(self, replica: str) -> None:
        """A replica has ended in good order."""
        self._reports.pop(replica, None)

    def reports(self) -> list[Report]:
        """The latest report of each replica that is not silent."""
        now = self._clock()
        for name, (at, _) in list(self._reports.items()):
            if now - at > _SILENT_SECONDS:
                del self._reports[name]
        return [report for _, report in self._reports.values()]

    def spec(self) -> ReplicaSpec:
        """What replicas are made by now."""
        return self._spec

    def change(self, spec: ReplicaSpec) -> None:
        """What replicas are made by from now on."""
        self._spec = spec
