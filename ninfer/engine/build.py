"""A loaded model and resolved sizes to the runtime that will run it."""

from ninfer.engine.loader import LoadedModel
from ninfer.engine.options import EngineOptions
from ninfer.engine.prefix import prefix_options
from ninfer.engine.resolve import Resolved
from ninfer.engine.speculation import build_speculation
from ninfer.runtime import Runtime


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
    return Runtime(
        model.weights,
        model.config,
        sizes,
        model.vision,
        speculation=speculation,
        prefix=prefix,
    )
