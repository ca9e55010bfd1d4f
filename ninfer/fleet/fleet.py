"""What every command of the fleet works with: settings, records, providers, time, and a voice."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ninfer.fleet.box import Connect
from ninfer.fleet.clock import Clock
from ninfer.fleet.config import Settings
from ninfer.fleet.contract import Contract
from ninfer.fleet.provider import Provider
from ninfer.fleet.store import Store


@dataclass(frozen=True, slots=True)
class Fleet:
    """The parts of one process. `say` tells a person what goes on; `connect` opens a machine."""

    settings: Settings
    store: Store
    providers: Mapping[str, Provider]
    clock: Clock
    say: Callable[[str], None]
    connect: Connect

    def provider_of(self, contract: Contract) -> Provider:
        """Where the machine comes from."""
        return self.providers[contract.provider]
