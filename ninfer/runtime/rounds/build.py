"""From a runtime's parts to its decode rounds."""

from collections.abc import Callable
from collections.abc import Sequence as Items

from ninfer.models.config import TextConfig
from ninfer.models.forward_batch import Caches, ForwardBatch
from ninfer.runtime.config import RuntimeConfig
from ninfer.runtime.model_runner import Pass
from ninfer.runtime.rounds.decode_rounds import DecodeRounds
from ninfer.runtime.rounds.lanes import LaneTable
from ninfer.runtime.rounds.play import RoundModel
from ninfer.runtime.rounds.sources import sources_of
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import Speculation


def decode_rounds(
    run: Callable[[ForwardBatch, Items[int]], Pass],
    caches: Caches,
    text: TextConfig,
    runtime: RuntimeConfig,
    speculation: Speculation | None,
    reserve: Callable[[Sequence, int], bool],
) -> DecodeRounds | None:
    """The rounds of a runtime whose passes are `run`; None where its options ask for none."""
    if runtime.rounds is None:
        return None
    sources = sources_of(speculation.proposer, runtime, text.hidden) if speculation else None
    model = RoundModel(
        run=run,
        table=LaneTable(runtime, text.vocab_rows),
        pending=caches.pending,
        addressable=text.addressable,
        drafter=sources.drafter if sources else None,
    )
    return DecodeRounds(model, runtime, sources=sources, speculation=speculation, reserve=reserve)
