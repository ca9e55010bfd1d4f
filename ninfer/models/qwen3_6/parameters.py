"""Logical parameters of a Qwen3.6 model, and in which rows of the stored objects of v2 they lie."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ninfer.formats.registry import FORMATS
from ninfer.models.config import ModelConfig
from ninfer.models.inventory import TensorSpec
from ninfer.models.parameters import ParameterSpec, ParameterTable, Piece
from ninfer.models.qwen3_6.inventory import DIVISOR, inventory
from ninfer.models.qwen3_6.recipe import Recipe, attention_rows, gdn_rows, recipe_for

# Last part of an object's name -> parameters in its rows, from the top. Names are container v3's.
_FUSED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "query_key": ("query", "key"),
        "gate_value": ("gate", "value"),
        "query_key_gate_value": ("query", "key", "gate", "value"),
        "query_key_value": ("query", "key", "value"),
        "value_z": ("value", "z"),
        "query_key_value_z": ("query", "key", "value", "z"),
        "a_b_projection": ("a_projection", "b_projection"),
        "qkv": ("query", "key", "value"),
        "qkv_bias": ("query_bias", "key_bias", "value_bias"),
        "gate_up": ("gate", "up"),
        "shared_gate_up": ("shared/gate", "shared/up"),
        "shared_down": ("shared/down",),
        "router_shared_gate": ("router", "shared_score"),
    }
)
_RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "text/draft_head": "proposal/head",
        "text/draft_head_token_ids": "proposal/token_ids",
    }
)
# The embedding gathers single rows, which the tiles of NVFP4 do not allow.
_MATRIX: Final = tuple(name for name in FORMATS if name not in ("FP32", "I32"))
_TABLE: Final = tuple(name for name in _MATRIX if name != "NVFP4")


def stored_contents(spec: TensorSpec, config: ModelConfig) -> list[tuple[str, int]]:
    """The parameters in an object of container v2 and their heights, from the top.

    An input divisor belongs to a use, not to a parameter; it holds none.
    """
    folder, _, leaf = spec.name.replace("mtp/layer/", "mtp/layers/0/").rpartition("/")
    rows = spec.shape[0] if spec.shape else 1
    if leaf == DIVISOR:
        return []
    if spec.name in _RENAMED:
        return [(_RENAMED[spec.name], rows)]
    if leaf in ("routed_gate_up", "routed_down"):
        assert config.text.moe is not None, spec.name
        parts = ("gate", "up") if leaf == "routed_gate_up" else ("down",)
        height = rows // (config.text.moe.experts * len(parts))
        return [
            (f"{folder}/experts/{expert}/{part}", height)
            for expert in range(config.text.moe.experts)
            for part in parts
        ]
    fused = _FUSED.get(leaf, (leaf,))
    heights = _heights(folder, fused, rows, config)
    return [(f"{folder}/{part}", height) for part, height in zip(fused, heights, strict=True)]


def stored_table(config: ModelConfig, recipe: Recipe) -> ParameterTable:
    """Where every parameter of all components lies in a v2 artifact of this recipe."""
    table = {}
    for spec in _tensors(config, recipe):
        start = 0
        for name, rows in stored_contents(spec, config):
            table[name] = (Piece(spec.name, start, start + rows),)
            start += rows
    return table


def parameter_specs(config: ModelConfig) -> list[ParameterSpec]:
    """Every parameter of all components, with the formats that this version can use it in.

    Matrices may be in any packed format or BF16; norms, biases and decay rates are as in v2.
    """
    # Any recipe will do: they differ in how parameters share objects, not in the parameters.
    recipe = recipe_for(config, "groupwise-int")
    return [
        ParameterSpec(name, (rows, *spec.shape[1:]), _formats(name, spec))
        for spec in _tensors(config, recipe)
        for name, rows in stored_contents(spec, config)
    ]


def _formats(name: str, spec: TensorSpec) -> tuple[str, ...]:
    if len(spec.shape) != 2 or name.endswith("/convolution"):
        return (spec.format,)
    return _TABLE if name == "text/token_embedding" else _MATRIX


def _tensors(config: ModelConfig, recipe: Recipe) -> Iterator[TensorSpec]:
    return (spec for spec in inventory(config, recipe) if isinstance(spec, TensorSpec))


def _heights(folder: str, parts: tuple[str, ...], rows: int, config: ModelConfig) -> list[int]:
    """Rows of each part of a fused object of `rows` rows."""
    if parts == ("router", "shared_score"):
        return [rows - 1, 1]
    sizes = _mixer_rows(folder, config)
    if len(parts) > 1 and sizes and all(part in sizes for part in parts):
        return [sizes[part] for part in parts]
    return [rows // len(parts)] * len(parts)


def _mixer_rows(folder: str, config: ModelConfig) -> Mapping[str, int]:
    """Heights of the projections of a mixer; none where all parts of an object are equal."""
    component, _, rest = folder.partition("/")
    drafter = {"dflash": config.dflash, "dflash2": config.dflash2}.get(component)
    if drafter is not None:
        query, kv = drafter.query_heads * drafter.head_dim, drafter.kv_heads * drafter.head_dim
        return {"query": query, "key": kv, "value": kv}
    if component not in ("text", "mtp"):
        return {}
    if rest.endswith("/gdn"):
        return gdn_rows(config.text.gdn)
    return attention_rows(config.text.attention) if rest.endswith("/attention") else {}
