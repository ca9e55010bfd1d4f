"""How fast a card may decode, by the bytes that a step reads: an estimate, never a measurement.

A step reads weights, experts, keys and values, and recurrent states. Each is taken to come at the
share of a card's stated bandwidth that its kernel had on the one card where it was measured. Time
between kernels, sampling and the head's logits are left out, and so are drafts: what these bring is
not known before a text is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ninfer.cards import Card
from ninfer.formats.registry import kv_format
from ninfer.models.forward_batch import cache_spec
from ninfer.runtime.memory_plan import Demand, ModelSizes, WeightBytes

# Context at which rates are stated, unless a sequence may not be as long.
CONTEXT: Final = 8192
# GB/s that the maker states for the card of the measurements.
_MEASURED_ON: Final = 4800
SOURCE: Final = "portable kernels on an NVIDIA H200, bench/results/ops.json"


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a card's bandwidth that one kernel used, and which row of the source tells it."""

    terabytes: float  # a second
    row: str
    shape: Mapping[str, int | str]

    @property
    def part(self) -> float:
        """Of the stated bandwidth, 0..1."""
        return 1000 * self.terabytes / _MEASURED_ON


# What a step reads -> the share of its kernel. A test holds the numbers to the source.
SHARES: Final[Mapping[str, Share]] = MappingProxyType(
    {
        "weights": Share(2.417, "linear Q4 portable", {"N": 34816, "T": 1}),
        "experts": Share(0.4686, "MoE experts 35B portable", {"T": 1}),
        "KV": Share(1.497, "attention int8 portable", {"heads": "24/4x256", "T": 1}),
        "states": Share(0.448, "GDN step", {"T": 1}),
    }
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens a second of one sequence at `context` tokens, and of all sequences together."""

    context: int
    one: float
    all: float
    bound: float  # of one sequence, were every byte to come at the stated bandwidth


def estimate(card: Card, model: ModelSizes, demand: Demand) -> Estimate | None:
    """What a card may do with a plan; None for one whose bandwidth is not known."""
    if card.bandwidth is None:
        return None
    rate = 1e9 * card.bandwidth
    context = min(CONTEXT, demand.max_context)
    one = step_bytes(model, demand, 1, context)
    many = step_bytes(model, demand, demand.sequences, context)
    return Estimate(
        context,
        1 / _seconds(one, rate),
        demand.sequences / _seconds(many, rate),
        rate / sum(one.values()),
    )


def _seconds(read: Mapping[str, float], rate: float) -> float:
    return sum(size / (rate * SHARES[part].part) for part, size in read.items())


def step_bytes(
    model: ModelSizes, demand: Demand, sequences: int, context: int
) -> Mapping[str, float]:
    """Bytes that a decode step of so many sequences of `context` tokens reads, by part.

    States are read and written. Of the table of embeddings a step reads next to nothing. Tokens
    choose experts independently, so of E experts 1 - (1 - k / E)^n are met by n of them.
    """
    text, spec = model.config.text, cache_spec(model.config)

    def resident(part: WeightBytes) -> int:
        return part.resident(demand.activation_bytes, decoded=demand.decoded)

    experts = resident(model.experts)
    met = 1 - (1 - text.moe.top_k / text.moe.experts) ** sequences if text.moe else 0.0
    token = spec.kv.layers * kv_format(demand.kv_format).bytes_per_token(
        spec.kv.heads, spec.kv.head_dim
    )
    state = spec.state.bytes_per_slot(demand.activation_bytes, 0, demand.matrix_bytes)
    return {
        "weights": resident(model.weights["text"]) - resident(model.embedding) - experts,
        "experts": met * experts,
        "KV": sequences * context * token,
        "states": 2 * sequences * state,
    }
