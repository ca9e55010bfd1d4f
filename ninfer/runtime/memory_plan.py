"""What fits into a device: weights, KV pages, state slots and workspace, as plain arithmetic.

`plan_memory` is the only place where these bytes are added up: the engine's start, the automatic KV
capacity and `ninfer plan` all ask it, so that they cannot disagree.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ninfer.artifact.directory import TensorEntry
from ninfer.formats.registry import kv_format, numeric_format
from ninfer.models.config import ModelConfig
from ninfer.models.forward_batch import KvCacheSpec, cache_spec
from ninfer.models.qwen3_6.block_weights import block_cache_spec
from ninfer.models.qwen3_6.mtp import mtp_cache_spec
from ninfer.runtime.config import PAGE_SIZE, pages_for
from ninfer.runtime.workspace import (
    PROMPT_ROWS,
    PassSizes,
    encode_bytes,
    graph_bytes,
    media_bytes,
    pass_bytes,
    round_bytes,
)

# What stays free for the driver, fragments and other programs unless asked otherwise.
MARGIN: Final = 1 << 30
# The largest picture that room is kept for: 4.2 megapixels in patches of 16 x 16.
MEDIA_PATCHES: Final = 1 << 14
# Weights of a drafter -> what it is called in a plan.
DRAFTERS: Final = {"mtp": "MTP", "dflash": "DFlash", "dflash2": "DFlash2"}

_ID: Final = 8  # bytes of a token id
_NAMES: Final = {"text": "text", "proposal": "draft head", "vision": "vision", **DRAFTERS}


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """What the tensors of one component hold: enough to tell their bytes in any resident form."""

    packed: int = 0  # bytes of packed matrices as stored
    packed_values: int = 0  # how many numbers those stand for
    narrow_values: int = 0  # BF16 numbers, which take the format of activations
    kept: int = 0  # bytes of tensors that stay as they are
    ids: int = 0  # token ids, of 32 bits in the file and 64 in memory

    def resident(self, activation_bytes: int, *, decoded: bool) -> int:
        """Bytes in memory; decoded matrices are float32."""
        matrices = 4 * self.packed_values if decoded else self.packed
        return matrices + self.narrow_values * activation_bytes + self.kept + _ID * self.ids


def weight_bytes(entries: Iterable[TensorEntry]) -> WeightBytes:
    """Add up stored tensors. Raises FormatError for a number format outside the table."""
    packed = packed_values = narrow_values = kept = ids = 0
    for entry in entries:
        values = 1
        for size in entry.shape:
            values *= size
        if numeric_format(entry.format).kind != "direct":
            packed += entry.bytes
            packed_values += values
        elif entry.format == "BF16":
            narrow_values += values
        elif entry.format == "I32":
            ids += values
        else:
            kept += entry.bytes
    return WeightBytes(packed, packed_values, narrow_values, kept, ids)


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A model as the plan sees it: its sizes, and the weights of each component in its file.

    Components are named by the first part of their parameters' names: text, proposal, mtp, ...
    The table of embeddings and the routed experts are part of "text".
    """

    config: ModelConfig
    weights: Mapping[str, WeightBytes]
    embedding: WeightBytes = WeightBytes()
    experts: WeightBytes = WeightBytes()
    tower_part: WeightBytes = WeightBytes()  # the largest block of the vision tower, or its ends


@dataclass(frozen=True, slots=True)
class Demand:
    """What is to be held at once.

    `components` are those that are loaded. `capacity` is the KV capacity in tokens of all sequences
    together; None takes what fits, up to full length for every sequence.
    """

    components: tuple[str, ...]
    max_context: int
    sequences: int
    capacity: int | None
    kv_format: str
    activation_bytes: int
    decoded: bool
    prefill_chunk: int
    window: int = 1  # rows of a decode piece: the anchor and its drafts
    matrix_bytes: int = 4  # of an entry of the recurrent matrices
    snapshot_bytes: int = 0  # of states that the prefix cache may keep on the device
    rounds: bool = False  # decode rounds run on the device
    graphs: bool = False  # and are captured
    host_embedding: bool = False  # the table of embeddings stays in host memory
    host_vision: bool = False  # the vision tower does; its parts visit the device one by one

    @property
    def least_pages(self) -> int:
        """Pages without which one sequence could not reach its full length, or start."""
        return max(pages_for(self.max_context), self.sequences)

    @property
    def most_pages(self) -> int:
        """Pages with which every sequence can reach its full length at once."""
        return self.sequences * pages_for(self.max_context)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by part, in the order of a table, and the KV pages that they leave room for."""

    memory: int  # bytes that are free for everything
    margin: int  # of which so many stay free
    parts: Mapping[str, int]
    page_bytes: int
    pages: int
    pages_wanted: int
    host: int = 0  # bytes of weights that stay in host memory, part of nothing else here

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())

    @property
    def missing(self) -> int:
        """Bytes by which it does not fit; 0 when it fits."""
        return max(self.total + self.margin - self.memory, 0)

    @property
    def fits(self) -> bool:
        """Whether all parts and the margin fit."""
        return self.missing == 0

    @property
    def tokens(self) -> int:
        """KV capacity in tokens."""
        return self.pages * PAGE_SIZE

    @property
    def tokens_wanted(self) -> int:
        """KV capacity in tokens that was asked for; more than `tokens` when it gave way."""
        return self.pages_wanted * PAGE_SIZE


def plan_memory(model: ModelSizes, demand: Demand, memory: int, margin: int = MARGIN) -> MemoryPlan:
    """Add up what `demand` needs of `memory` bytes, all in bytes.

    With an automatic capacity the KV pages take what the fixed parts leave, between the least and
    the most that make sense; nothing else ever gives way. The explicit capacity that an automatic
    plan reports gives the same plan. Raises FormatError for an unknown KV format.
    """
    fixed = {
        f"{_NAMES[name]} weights": component_bytes(model, demand, name)
        for name in demand.components
    }
    if "proposal" not in demand.components and any(name in demand.components for name in DRAFTERS):
        # Drafts are read from the whole head by a list of the ids that its rows stand for.
        fixed["draft ids"] = _ID * model.config.text.addressable
    slot = state_bytes(model.config, demand.activation_bytes, demand.window, demand.matrix_bytes)
    fixed["state slots"] = demand.sequences * slot
    fixed["prefix snapshots"] = demand.snapshot_bytes
    fixed["workspace"] = _workspace(model.config, demand)
    fixed["decode rounds"] = _rounds(model.config, demand)
    page = page_bytes(model.config, demand)
    room = (memory - margin - sum(fixed.values())) // page
    if demand.capacity is None:
        wanted = demand.most_pages
        pages = min(max(room, demand.least_pages), wanted)
    else:
        wanted = pages = pages_for(demand.capacity)
    parts = fixed | {"KV pages": pages * page}
    host = sum(
        part.resident(demand.activation_bytes, decoded=False) for part in _host(model, demand)
    )
    return MemoryPlan(memory, margin, parts, page, pages, wanted, host)


def component_bytes(model: ModelSizes, demand: Demand, name: str) -> int:
    """Bytes of a component's weights on the device, less what stays in host memory."""
    if name == "vision" and demand.host_vision:
        # They are taken as they are stored; no more than one part is on the device.
        return model.tower_part.resident(demand.activation_bytes, decoded=False)
    found = model.weights[name].resident(demand.activation_bytes, decoded=demand.decoded)
    if name == "text" and demand.host_embedding:
        found -= model.embedding.resident(demand.activation_bytes, decoded=demand.decoded)
    return found


def _host(model: ModelSizes, demand: Demand) -> Iterable[WeightBytes]:
    if demand.host_embedding:
        yield model.embedding
    if demand.host_vision and "vision" in demand.components:
        yield model.weights["vision"]


def _rounds(config: ModelConfig, demand: Demand) -> int:
    """What decode rounds hold besides caches: tables of the sequences, and memory of graphs."""
    if not demand.rounds:
        return 0
    sizes = (config.text, demand.sequences, demand.window, demand.max_context)
    return round_bytes(*sizes) + (graph_bytes(*sizes) if demand.graphs else 0)


def page_bytes(config: ModelConfig, demand: Demand) -> int:
    """Bytes of one KV page over all layers that have one, those of the drafter included."""
    form = kv_format(demand.kv_format)
    specs = [cache_spec(config).kv, *_drafter_caches(config, demand.components)]
    token = sum(spec.layers * form.bytes_per_token(spec.heads, spec.head_dim) for spec in specs)
    return token * PAGE_SIZE


def _drafter_caches(config: ModelConfig, components: Iterable[str]) -> Iterable[KvCacheSpec]:
    if "mtp" in components:
        yield mtp_cache_spec(config.text)
    for name, drafter in (("dflash", config.dflash), ("dflash2", config.dflash2)):
        if name in components and drafter is not None:
            yield block_cache_spec(drafter)


def state_bytes(
    config: ModelConfig, activation_bytes: int, window: int, matrix_bytes: int = 4
) -> int:
    """Bytes of one state slot over all layers, `window` rows that are not committed included."""
    return cache_spec(config).state.bytes_per_slot(activation_bytes, window, matrix_bytes)


def _workspace(config: ModelConfig, demand: Demand) -> int:
    """The larger of a pass and the encoding of a picture, and the rows of encoded pictures."""
    drafters = {"dflash": config.dflash, "dflash2": config.dflash2}
    taps = [len(d.target_layers) for name, d in drafters.items() if d and name in demand.components]
    sizes = PassSizes(
        rows=min(demand.prefill_chunk, demand.max_context) + (demand.sequences - 1) * demand.window,
        logit_rows=max(demand.sequences * demand.window, PROMPT_ROWS),
        context=demand.max_context,
        activation_bytes=demand.activation_bytes,
        taps=sum(taps),
    )
    needed = pass_bytes(config.text, sizes)
    if "vision" not in demand.components:
        return needed
    assert config.vision is not None
    encoded = media_bytes(config, MEDIA_PATCHES, demand.activation_bytes) * demand.sequences
    encoding = encode_bytes(config.vision, MEDIA_PATCHES, demand.activation_bytes)
    return max(needed, encoding) + encoded
