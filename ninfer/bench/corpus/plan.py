"""The plan of a campaign: every fixture with every seed and sampling, in a fixed order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ninfer.bench.corpus.fixtures import Fixture
from ninfer.errors import UsageError

# Members of a request by sampling name; the published corpus draws like this.
STOCHASTIC: Final[Mapping[str, Any]] = {
    "temperature": 0.6,
    "top_p": 0.95,
    "top_k": 20,
    "presence_penalty": 1.0,
}
SAMPLING: Final[Mapping[str, Mapping[str, Any]]] = {
    "stochastic": STOCHASTIC,
    "greedy": {"temperature": 0.0},
}


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to be answered once. `max_new` is the fixture's limit or the user's."""

    fixture: Fixture
    sampling: str
    seed: int
    max_new: int

    @property
    def drawing(self) -> Mapping[str, Any]:
        """How tokens are drawn."""
        return SAMPLING[self.sampling]

    def key(self, mode: str) -> tuple[str, str, int | None, str, str]:
        """What a stored response to it has as its key."""
        return self.fixture.name, "", self.seed, self.sampling, mode


def plan_asks(
    fixtures: Sequence[Fixture],
    samplings: Sequence[str],
    seeds: Sequence[int],
    max_new: int | None,
) -> list[Ask]:
    """All asks of one mode. Raises UsageError when there is nothing to ask."""
    if not fixtures:
        raise UsageError("no fixture is left to ask; see 'ninfer bench corpus --list'")
    return [
        Ask(fixture, sampling, seed, max_new or fixture.max_new)
        for sampling in samplings
        for fixture in fixtures
        for seed in seeds
    ]
