"""What is to be on a machine: kit, Python, artifact, and how the server is called."""

from dataclasses import dataclass, field
from pathlib import Path

from ninfer.fleet.profiles import Model


@dataclass(frozen=True, slots=True)
class Source:
    """A kit: a file here or an address there, and the SHA-256 that either must have.

    `token` goes with the request for the address and is shown nowhere. A kit with a `build`, the
    address and ref of a repository, is made on the machine; an empty address is this checkout.
    """

    file: Path | None
    url: str
    sha256: str
    token: str = field(default="", repr=False)
    build: tuple[str, str] | None = None

    @property
    def id(self) -> str:
        """The folder that it is unpacked to."""
        return self.sha256[:16]


@dataclass(frozen=True, slots=True)
class Plan:
    """One deployment. `python` is an interpreter there that has the packages; empty: make one.

    `architecture` is the card's compute capability times ten, 0 to serve without a card.
    `artifact` is a file here in place of the model's published one. `key` is never shown.
    """

    kit: Source
    model: Model
    options: tuple[str, ...]
    key: str
    architecture: int = 0
    python: str = ""
    artifact: Path | None = None
    artifact_sha256: str = ""
    port: int = 8080

    def __repr__(self) -> str:
        return f"Plan({self.kit.id}, {self.model.name}, port {self.port})"
