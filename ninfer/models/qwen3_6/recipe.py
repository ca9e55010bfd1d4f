"""Which projections share a stored matrix, and in which numeric format, per registered recipe."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
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
    """Stored forms of a checkpoint. Parents of a layer are listed in file order.

    `exceptions` maps a role to the layers whose matrices of that role have another format. Roles
    are the names of the fields below; all parents of "attention" or "gdn" share theirs.
    """

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
    exceptions: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    def format_of(self, role: str, layer: int) -> str:
        """Format of one layer's matrix of a role that is a single matrix, `mlp_down` for one."""
        usual = getattr(self, role)
        assert isinstance(usual, str), role
        return self.exceptions.get(role, {}).get(layer, usual)

    def parents(self, role: str, layer: int) -> tuple[Parent, ...]:
        """Fused matrices of one layer with their formats there; `role` is a tuple of parents."""
        usual = getattr(self, role)
        assert isinstance(usual, tuple), role
        other = self.exceptions.get(role, {}).get(layer)
        if other is None:
            return usual
        return tuple(Parent(parent.name, parent.parts, other) for parent in usual)


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
    # Some late layers of the published file keep one more bit.
    exceptions={"routed_down": dict.fromkeys((34, 38, 39), "Q6G64_F16S")},
)


_ALL_FUSED_ATTENTION: Final = ("query", "key", "gate", "value")
_ALL_FUSED_GDN: Final = ("query", "key", "value", "z")
_FP8: Final = "FP8_E4M3FN_ROW_BF16S"

DENSE_NVFP4: Final = Recipe(
    embedding="W8G32_F16S",
    head="W8G32_F16S",
    attention=(Parent("query_key_gate_value", _ALL_FUSED_ATTENTION, "NVFP4"),),
    attention_output="NVFP4",
    gdn_gates=DENSE_GROUPWISE.gdn_gates,
    gdn=(Parent("query_key_value_z", _ALL_FUSED_GDN, "NVFP4"),),
    gdn_output="NVFP4",
    mlp_gate_up="NVFP4",
    mlp_down="NVFP4",
    # The source checkpoint left these early, sensitive matrices unquantised.
    exceptions={
        "attention": dict.fromkeys((3, 7, 11, 15, 19, 23), "BF16"),
        "attention_output": dict.fromkeys((3, 7), "BF16"),
        "gdn_output": {4: "BF16"},
    },
)

# Qwen3.8: more precise embedding and head, otherwise as before.
DENSE_38_GROUPWISE: Final = replace(DENSE_GROUPWISE, embedding="W8G32_F16S", head="W8G32_F16S")

DENSE_38_NVFP4: Final = Recipe(
    embedding=_FP8,
    head=_FP8,
    attention=(Parent("query_key_gate_value", _ALL_FUSED_ATTENTION, _FP8),),
    attention_output=_FP8,
    gdn_gates=MOE_GROUPWISE.gdn_gates,
    gdn=(Parent("query_key_value_z", _ALL_FUSED_GDN, _FP8),),
    gdn_output=_FP8,
    mlp_gate_up="NVFP4",
    mlp_down="NVFP4",
    # The last eight MLPs of the source checkpoint are FP8.
    exceptions={
        "mlp_gate_up": dict.fromkeys(range(56, 64), _FP8),
        "mlp_down": dict.fromkeys(range(56, 64), _FP8),
    },
)

# By generation, whether it is a mixture of experts, and weights id.
RECIPES: Final[Mapping[tuple[str, bool, str], Recipe]] = MappingProxyType(
    {
        ("qwen3.6", False, "groupwise-int"): DENSE_GROUPWISE,
        ("qwen3.6", False, "nvfp4"): DENSE_NVFP4,
        ("qwen3.6", True, "groupwise-int"): MOE_GROUPWISE,
        ("qwen3.8", False, "groupwise-int"): DENSE_38_GROUPWISE,
        ("qwen3.8", False, "nvfp4"): DENSE_38_NVFP4,
    }
)


def recipe_for(config: ModelConfig, weights_id: str) -> Recipe:
    """The recipe of a configuration. Raises ConfigError for a weights id without one."""
    kind = (config.generation, config.text.moe is not None)
    found = RECIPES.get((*kind, weights_id))
    if found is None:
        known = ", ".join(name for *other, name in RECIPES if tuple(other) == kind)
        form = "mixture-of-experts" if config.text.moe else "dense"
        raise ConfigError(
            f"weights id {weights_id!r} is not supported for {form} {config.generation} models; "
            f"known: {known or 'none'}"
        )
    return found


def attention_rows(sizes: AttentionSizes) -> dict[str, int]:
    """Rows of each projection of gated attention."""
    query, kv = sizes.query_width, sizes.kv_width
    return {"query": query, "key": kv, "gate": query, "value": kv}


def gdn_rows(sizes: GdnSizes) -> dict[str, int]:
    """Rows of each projection of Gated DeltaNet."""
    key, value, heads = sizes.key_width, sizes.value_width, sizes.value_heads
    return {"query": key, "key": key, "value": value, "z": value, "a": heads, "b": heads}
