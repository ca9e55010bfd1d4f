"""What every command of the fleet works with: settings, records, providers, time, and a voice."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ninfer.errors import UsageError
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
        """Where the machine comes from. Raises UsageError when that cannot be asked."""
        return self.provider(contract.provider)

    def provider(self, name: str) -> Provider:
        """A provider by name. Raises UsageError when its key is missing."""
        if name not in self.providers:
            if name == "vast":
                self.settings.secret("VAST_API_KEY")
            raise UsageError(f"{name}: no such provider in this version of ninfer")
        return self.providers[name]
