"""A loaded model and resolved sizes to the runtime that will run it."""

import time

from ninfer.engine.loader import LoadedModel
from ninfer.engine.options import EngineOptions
from ninfer.engine.prefix import prefix_options
from ninfer.engine.resolve import Resolved
from ninfer.engine.speculation import build_speculation
from ninfer.log import get_logger
from ninfer.runtime import Runtime

log = get_logger(__name__)


def build_runtime(
    options: EngineOptions, model: LoadedModel, resolved: Resolved, backend: str
) -> Runtime:
    """The runtime of a model, with prefix reuse and speculation as the options ask."""
    sizes = resolved.runtime
    speculation = build_speculation(options, model.config, sizes, model.weights, model.drafter)
    prefix = prefix_options(
        options,
        sizes,
        artifact=model.identity,
        fingerprint=model.fingerprint,
        backend=backend,
        decoded=resolved.residency.decoded,
    )
    runtime = Runtime(
        model.weights,
        model.config,
        sizes,
        model.vision,
        speculation=speculation,
        prefix=prefix,
    )
    _ready_rounds(runtime)
    return runtime


def _ready_rounds(runtime: Runtime) -> None:
    """Capture the usual rounds before the first request, and say how rounds will run."""
    rounds = runtime.rounds
    if rounds is None:
        log.info("decode: every step from the host")
        return
    start = time.perf_counter()
    rounds.warm_up()
    seconds = time.perf_counter() - start
    graphs = rounds.player.captured
    how = f"{graphs} graphs captured in {seconds:.1f} s" if graphs else "rounds op by op"
    log.info("decode: %s, the host %d behind", how, rounds.ahead)
