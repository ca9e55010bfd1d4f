"""serve and update: Ray Serve below, the gateway in this process."""

import asyncio
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import ray
from ray import serve as ray_serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from ninfer.cluster.directory import NAME, NAMESPACE, Directory
from ninfer.cluster.gateway import Gateway, gateway_app
from ninfer.cluster.options import ClusterOptions
from ninfer.cluster.replica import Replica
from ninfer.cluster.report import ReplicaSpec
from ninfer.cluster.roster import Roster
from ninfer.engine.options import EngineOptions
from ninfer.errors import UnavailableError, UsageError
from ninfer.log import get_logger
from ninfer.server.options import ServerOptions
from ninfer.server.serve import listen, server_of

_log = get_logger(__name__)
_APP: Final = "ninfer"
_LOCAL: Final = "local"
_LOOK_SECONDS: Final = 0.1
_PROBE_SECONDS: Final = 2.0
# A machine that stalls is not dead.
_PROBE_TIMEOUT: Final = 60.0
# Beyond --drain-s, for the last words of what is cut off and for closing the engine.
_END_SECONDS: Final = 15.0
_SCALE_UP_SECONDS: Final = 5.0
_SCALE_DOWN_SECONDS: Final = 120.0


def run(options: ClusterOptions, server: ServerOptions, engine: EngineOptions) -> int:
    """Serve until a signal ends it, then end the replicas; gives the exit status.

    Raises UsageError for what cannot be had, UnavailableError where replicas do not start.
    """
    listener = listen(server.host, server.port)
    with _connected(options.address), tempfile.TemporaryDirectory(prefix="ninfer-") as folder:
        spec = _spec_of(options, server, engine, Path(folder))
        directory = _directory(spec)
        try:
            _deploy(spec, directory)
            asyncio.run(_gateway(spec, directory, listener))
        finally:
            # The replicas are of this gateway, whose secret nobody else has.
            ray_serve.delete(_APP)
            ray.kill(directory)
    return 0


def update(address: str, artifact: Path) -> None:
    """Replace the artifact of a cluster that serves, and wait until all replicas have it.

    Raises UsageError where nothing serves, UnavailableError where the new replicas do not start;
    the old artifact is served again then.
    """
    if not artifact.exists():
        raise UsageError(f"ARTIFACT {artifact}: is not there; name a file")
    with _connected(address):
        try:
            directory = ray.get_actor(NAME, NAMESPACE)
        except ValueError:
            raise UsageError(
                f"--address {address}: no 'ninfer cluster serve' runs there; start one"
            ) from None
        before: ReplicaSpec = ray.get(directory.spec.remote())
        engine = replace(before.engine, artifact=artifact.resolve())
        spec = replace(before, engine=engine)
        try:
            _deploy(spec, directory)
        except UnavailableError:
            _log.error("%s does not start; the replicas go back to %s", artifact, _named(before))
            _deploy(before, directory)
            raise
        ray.get(directory.change.remote(spec))


def _named(spec: ReplicaSpec) -> str:
    return str(spec.engine.artifact)


def deployment_of(spec: ReplicaSpec) -> Any:
    """Ray Serve's deployment of replicas: how many, with what, and how they are watched."""
    options = spec.cluster
    return ray_serve.deployment(Replica).options(
        name="replica",
        ray_actor_options={"num_cpus": options.cpus, "num_gpus": spec.gpus},
        health_check_period_s=_PROBE_SECONDS,
        health_check_timeout_s=_PROBE_TIMEOUT,
        graceful_shutdown_wait_loop_s=_LOOK_SECONDS,
        graceful_shutdown_timeout_s=spec.server.drain_s + _END_SECONDS,
        **_count(options, spec.gpus),
    )


def _count(options: ClusterOptions, gpus: float) -> dict[str, Any]:
    if options.replicas is not None:
        return {"num_replicas": options.replicas}
    most = options.max_replicas or _room(options, gpus)
    scaling = AutoscalingConfig(
        min_replicas=options.min_replicas,
        max_replicas=max(most, options.min_replicas),
        metrics_interval_s=1.0,
        look_back_period_s=_SCALE_UP_SECONDS,
        upscale_delay_s=_SCALE_UP_SECONDS,
        downscale_delay_s=_SCALE_DOWN_SECONDS,
        policy=AutoscalingPolicy(policy_function="ninfer.cluster.autoscale.policy"),
    )
    return {"autoscaling_config": scaling}


def _room(options: ClusterOptions, gpus: float) -> int:
    """Replicas that the cluster has room for."""
    have = ray.cluster_resources()
    by_cores = int(have.get("CPU", 0) / options.cpus)
    return max(1, min(by_cores, int(have.get("GPU", 0) / gpus)) if gpus else by_cores)


def _spec_of(
    options: ClusterOptions, server: ServerOptions, engine: EngineOptions, folder: Path
) -> ReplicaSpec:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    local = len(nodes) == 1
    gpus = 1.0 if engine.device != "cpu" and ray.cluster_resources().get("GPU") else 0.0
    room = _room(options, gpus)
    count = options.replicas or options.min_replicas
    if count > room:
        raise UsageError(
            f"--replicas {count}: the cluster has room for {room}; lower it, or --cpus"
            if options.replicas
            else f"--min-replicas {count}: the cluster has room for {room}; lower it, or --cpus"
        )
    store = options.response_store
    if not local and store:
        raise UsageError(
            f"--response-store {store}: one file is of one machine, the cluster has {len(nodes)}; "
            "leave it out"
        )
    if store is None and local:
        store = str(folder / "responses.sqlite")
    artifact = engine.artifact.resolve()
    return ReplicaSpec(
        options,
        server,
        replace(engine, artifact=artifact),
        secrets.token_urlsafe(32),
        str(Path(store).resolve()) if store else None,
        local,
        gpus,
    )


def _directory(spec: ReplicaSpec) -> Any:
    try:
        return ray.remote(Directory).options(name=NAME, num_cpus=0).remote(spec)
    except ValueError:
        raise UsageError(
            "the Ray cluster has a 'ninfer cluster serve' already; end it, or use another cluster"
        ) from None


def _deploy(spec: ReplicaSpec, directory: Any) -> None:
    """Start replicas, or replace those of another artifact one by one, and wait for the last."""
    ray_serve.start(proxy_location="Disabled")
    _log.info("replicas start with %s", _named(spec))
    try:
        app = deployment_of(spec).bind(spec, directory)
        ray_serve.run(app, name=_APP, route_prefix=None)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise UnavailableError(f"the replicas do not start: {text[-500:]}") from None


async def _gateway(spec: ReplicaSpec, directory: Any, listener: socket.socket) -> None:
    roster = Roster(spec.cluster.routing, wait=spec.cluster.replica_wait_s)
    gateway = Gateway(spec.server, roster, spec.secret)
    roster.update(await directory.reports.remote())
    watch = asyncio.create_task(_watch(directory, roster))
    server = server_of(gateway_app(gateway, spec.server), gateway.drain, lambda stop: None)
    host, port = listener.getsockname()[:2]
    _log.info("a gateway before %d replicas at http://%s:%d", len(roster.usable), host, port)
    await server.serve([listener])
    watch.cancel()


async def _watch(directory: Any, roster: Roster) -> None:
    """Learn what replicas report, until it is cancelled."""
    while True:
        try:
            roster.update(await directory.reports.remote())
        except ray.exceptions.RayError as error:
            _log.error("the directory does not answer: %s", str(error).partition("\n")[0])
        await asyncio.sleep(_LOOK_SECONDS)


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Ray, of its own or one that runs. Raises UsageError where none can be reached."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    given: dict[str, Any] = {"include_dashboard": False}
    if address is not None:
        given = {"address": "auto" if address == _LOCAL else address}
    try:
        ray.init(namespace=NAMESPACE, **given)
    except (ConnectionError, ValueError) as error:
        text = str(error).partition("\n")[0]
        raise UsageError(f"--address {address}: {text}") from None
    try:
        yield
    finally:
        ray.shutdown()
