"""Which projections share a stored matrix, and in which numeric format, per registered recipe."""

from dataclasses import dataclass, field
from typing import Final

from ninfer.errors import ConfigError
from ninfer.models.config import AttentionSizes, GdnSizes, ModelConfig


@dataclass(frozen=True, slots=True)
class Parent:
    """One stored matrix whose rows are the named projections, in this order."""

    name: str
    parts: tuple[str, ...]
    format: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """Stored forms of a checkpoint. Parents of a layer are listed in file order."""

    embedding: str
    head: str
    attention: tuple[Parent, ...]
    attention_output: str
    gdn_gates: tuple[Parent, ...]
    gdn: tuple[Parent, ...]
    gdn_output: str
    mlp_gate_up: str = ""
    mlp_down: str = ""
    routed_gate_up: str = ""
    routed_down: str = ""
    routed_down_exceptions: dict[int, str] = field(default_factory=dict)

    def routed_down_format(self, layer: int) -> str:
        """Format of the routed down projections of one layer."""
        return self.routed_down_exceptions.get(layer, self.routed_down)


DENSE_GROUPWISE: Final = Recipe(
    embedding="Q6G64_F16S",
    head="Q6G64_F16S",
    attention=(
        Parent("query_key", ("query", "key"), "Q4G64_F16S"),
        Parent("gate_value", ("gate", "value"), "Q5G64_F16S"),
    ),
    attention_output="Q5G64_F16S",
    gdn_gates=(Parent("a_projection", ("a",), "BF16"), Parent("b_projection", ("b",), "BF16")),
    gdn=(
        Parent("query_key", ("query", "key"), "Q4G64_F16S"),
        Parent("value_z", ("value", "z"), "Q5G64_F16S"),
    ),
    gdn_output="Q5G64_F16S",
    mlp_gate_up="Q4G64_F16S",
    mlp_down="Q5G64_F16S",
)

MOE_GROUPWISE: Final = Recipe(
    embedding="W8G32_F16S",
    head="Q6G64_F16S",
    attention=(Parent("query_key_gate_value", ("query", "key", "gate", "value"), "W8G32_F16S"),),
    attention_output="W8G32_F16S",
    gdn_gates=(Parent("a_b_projection", ("a", "b"), "BF16"),),
    gdn=(Parent("query_key_value_z", ("query", "key", "value", "z"), "W8G32_F16S"),),
    gdn_output="W8G32_F16S",
    routed_gate_up="Q4G64_F16S",
    routed_down="Q5G64_F16S",
    # The late layers of the published 35B file keep one more bit.
    routed_down_exceptions={34: "Q6G64_F16S", 38: "Q6G64_F16S", 39: "Q6G64_F16S"},
)


def recipe_for(config: ModelConfig, weights_id: str) -> Recipe:
    """The recipe of a configuration. Raises ConfigError for a weights id without one."""
    if weights_id != "groupwise-int":
        raise ConfigError(
            f"weights id {weights_id!r} is not supported by this version; known: groupwise-int"
        )
    return MOE_GROUPWISE if config.text.moe else DENSE_GROUPWISE


def attention_rows(sizes: AttentionSizes) -> dict[str, int]:
    """Rows of each projection of gated attention."""
    query, kv = sizes.query_width, sizes.kv_width
    return {"query": query, "key": kv, "gate": query, "value": kv}


def gdn_rows(sizes: GdnSizes) -> dict[str, int]:
    """Rows of each projection of Gated DeltaNet."""
    key, value, heads = sizes.key_width, sizes.value_width, sizes.value_heads
    return {"query": key, "key": key, "value": value, "z": value, "a": heads, "b": heads}
