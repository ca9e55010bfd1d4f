"""What replicas, gateway and updates tell one another: reports, and how replicas are made."""

from dataclasses import dataclass, field

from ninfer.cluster.options import ClusterOptions
from ninfer.engine.options import EngineOptions
from ninfer.server.options import ServerOptions


@dataclass(frozen=True, slots=True)
class Report:
    """What a replica says of itself; `beat` grows with each report."""

    replica: str  # its name, new with each start
    url: str
    artifact: str
    places: int  # requests that it runs at once
    beat: int
    serves: bool  # by the engine's own word, and not about to end
    pid: int = 0  # of its process, on its machine
    load: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """What every replica of a cluster is made by."""

    cluster: ClusterOptions
    server: ServerOptions
    engine: EngineOptions
    secret: str  # by which replicas know the gateway
    store: str | None  # file of stored responses; None: each replica has a memory of its own
    local: bool  # whether gateway and replicas are on one machine
    gpus: float  # of each replica
