"""A replica: what `ninfer serve` runs, in an actor of Ray Serve, for the gateway only."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import ray
import torch
from ray import serve as ray_serve

from ninfer.cluster.autoscale import PLACES, REQUESTS, STARVED
from ninfer.cluster.keys import GatewayKeys
from ninfer.cluster.report import ReplicaSpec, Report
from ninfer.cluster.store import SharedResponses
from ninfer.engine import AsyncEngine, Engine
from ninfer.errors import UnavailableError
from ninfer.log import configure
from ninfer.server.options import ServerOptions
from ninfer.server.serve import listen, serve
from ninfer.server.service import Service

_REPORT_SECONDS: Final = 0.25
_LOOPBACK: Final = "127.0.0.1"


class Replica:
    """Loads the engine, serves it on a port of its own, and reports to the directory.

    Requests come by HTTP, past Ray, so that streams and disconnections are those of any server.
    Ray Serve starts, places, probes, counts and ends it.
    """

    def __init__(self, spec: ReplicaSpec, directory: Any) -> None:
        options = _options_of(spec)
        configure(options.log_level, as_json=options.log_json)
        if not spec.gpus:
            torch.set_num_threads(max(1, int(spec.cluster.cpus)))
        self._directory: Final = directory
        self._artifact: Final = str(spec.engine.artifact)
        self._name: Final = str(ray_serve.get_replica_context().replica_id.unique_id)
        engine = AsyncEngine(Engine.load(spec.engine))
        self._store = _store_of(spec)
        self._service: Final = Service(engine, options, responses=self._store)
        listener = listen(options.host, 0)
        self._url: Final = f"http://{options.host}:{listener.getsockname()[1]}"
        self._loop: Final = asyncio.new_event_loop()
        self._stop: list[Callable[[], None]] = []
        running = serve(self._service, listener, self._stop.append, GatewayKeys(spec.secret))
        self._server: Final = threading.Thread(
            target=lambda: self._loop.run_until_complete(running), name="ninfer-http", daemon=True
        )
        self._server.start()
        self._ending: Final = threading.Event()
        self._reporter: Final = threading.Thread(
            target=self._report, name="ninfer-report", daemon=True
        )
        self._reporter.start()

    def check_health(self) -> None:
        """Ray Serve's probe: raises when the engine has failed for good, so it is made anew.

        An engine that is only stalled is not: it may recover, and takes no requests meanwhile.
        """
        if self._service.engine.has_failed or not self._server.is_alive():
            raise UnavailableError(f"the engine has failed: {self._service.trouble}")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What the number of replicas is chosen by."""
        load = self._service.engine.engine.snapshot().load
        starved = load.waiting if load.free_slots else load.preempted
        places = self._service.facts.max_concurrency
        return {REQUESTS: self._service.active, PLACES: places, STARVED: starved}

    async def __del__(self) -> None:
        """End in good order: no new requests, those under way to their end, then leave."""
        if self._stop:
            self._loop.call_soon_threadsafe(self._stop[0])
            await asyncio.to_thread(self._server.join)
        self._ending.set()
        await asyncio.to_thread(self._reporter.join)
        with contextlib.suppress(ray.exceptions.RayError):
            await self._directory.leave.remote(self._name)
        if self._store is not None:
            self._store.close()

    def _report(self) -> None:
        beat = 0
        while not self._ending.wait(_REPORT_SECONDS):
            beat += 1
            self._directory.report.remote(self._state(beat))

    def _state(self, beat: int) -> Report:
        snapshot = self._service.engine.engine.snapshot()
        load = snapshot.load
        numbers: dict[str, float] = {
            "running": load.running,
            "waiting": load.waiting,
            "kv_used_pages": load.pages - load.free_pages,
            "kv_pages": load.pages,
            "prefix_asked_tokens": snapshot.prefix_asked_tokens,
            "prefix_reused_tokens": snapshot.prefix_reused_tokens,
            "generated_tokens": self._service.engine.generated_tokens,
        }
        return Report(
            self._name,
            self._url,
            self._artifact,
            self._service.facts.max_concurrency,
            beat,
            self._service.trouble is None,
            os.getpid(),
            numbers,
        )


def _options_of(spec: ReplicaSpec) -> ServerOptions:
    """The server's options less what is the gateway's: address, keys, hosts, origins."""
    host = _LOOPBACK if spec.local else ray.util.get_node_ip_address()
    return replace(
        spec.server,
        host=host,
        port=0,
        api_key=(),
        api_key_file=None,
        allowed_host=(),
        cors=False,
        cors_origin=(),
    )


def _store_of(spec: ReplicaSpec) -> SharedResponses | None:
    if spec.store is None:
        return None
    options = spec.server
    return SharedResponses(
        Path(spec.store), options.response_store_max_records, options.response_store_max_mib << 20
    )
