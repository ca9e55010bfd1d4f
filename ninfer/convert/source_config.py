"""Sizes and text resources of a conversion, from the JSON files beside the source's weights."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

from ninfer.artifact.directory import Identity
from ninfer.convert.checkpoint import Checkpoint, read_json
from ninfer.errors import CheckpointError, ConfigError
from ninfer.models import REGISTERED, ModelConfig
from ninfer.models.config import model_config_from_fields
from ninfer.models.qwen3_6 import FRONTEND_RESOURCES
from ninfer.models.qwen3_6.sizes import DFLASH2_27B

CONFIG_NAME: Final = "config.json"


def read_resources(folder: Path) -> dict[str, bytes]:
    """The files that go into the artifact unchanged, by object name.

    Raises CheckpointError naming the file that is missing or empty.
    """
    found = {}
    for name in FRONTEND_RESOURCES:
        path = folder / name.rsplit("/", 1)[-1]
        try:
            found[name] = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
        if not found[name]:
            raise CheckpointError(f"{path}: is empty")
    return found


def addressable_ids(folder: Path) -> int:
    """One more than the largest token id of tokenizer.json and tokenizer_config.json."""
    path = folder / "tokenizer.json"
    tokenizer, extra = read_json(path), read_json(folder / "tokenizer_config.json")
    try:
        ids = [*tokenizer["model"]["vocab"].values()]
        ids += [token["id"] for token in tokenizer.get("added_tokens", [])]
        ids += [int(key) for key in extra.get("added_tokens_decoder", {})]
        return int(max(ids)) + 1
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: is not a tokenizer with a vocabulary of ids") from error


def source_fields(folder: Path, drafter: Checkpoint | None) -> dict[str, Any]:
    """Configuration fields of a checkpoint, as `model_config_from_fields` reads them.

    Everything is from config.json, but for the number of addressable ids, which the tokenizer
    gives, and the sizes of a drafter. Raises CheckpointError naming file and member.
    """
    path = folder / CONFIG_NAME
    root = read_json(path)
    text = dict(_section(root.get("text_config", root), path))
    if text.get("full_attention_interval") is None:
        text["full_attention_interval"] = _interval(text, path)
    rope = dict(_section(text.get("rope_parameters") or {}, path))
    for name in ("rope_theta", "partial_rotary_factor"):
        if rope.get(name) is None:
            rope[name] = text.get(name)
    text["rope_parameters"] = rope
    text["addressable_vocab_size"] = addressable_ids(folder)
    found: dict[str, Any] = {"text_config": text, "mtp": _has_mtp(text, path)}
    if root.get("vision_config") is not None:
        found["vision_config"] = _section(root["vision_config"], path)
    if drafter is not None:
        found.update(_drafter_fields(drafter))
    return found


def registered_config(identity: Identity, source: Mapping[str, Any]) -> ModelConfig:
    """The built-in sizes of a registered identity, once the source's own sizes equal them.

    A DFlash2 drafter is added to Qwen3.8-27B when `source` has one. Raises ConfigError naming the
    size that differs.
    """
    config = REGISTERED[identity.model_id, identity.weights_id]
    if "dflash2_config" in source and identity.model_id == "qwen3.8-27b":
        config = replace(config, dflash2=DFLASH2_27B)
    has_drafter = config.dflash is not None or config.dflash2 is not None
    drafters = {name for name in ("dflash_config", "dflash2_config") if name in source}
    if drafters and not has_drafter:
        raise ConfigError(f"{identity} has no drafter; leave out --drafter-source")
    # A drafter's file may spell its sizes otherwise; the shapes of its tensors will be compared.
    sizes = {name: value for name, value in source.items() if name not in drafters}
    found = model_config_from_fields({**sizes, "draft_head_rows": 0})
    if difference := _difference(found.text, config.text, "text"):
        raise ConfigError(f"{CONFIG_NAME}: {difference} of {identity}")
    # A checkpoint of the text alone says nothing about vision; its tensors will be looked for.
    if found.vision and (difference := _difference(found.vision, config.vision, "vision")):
        raise ConfigError(f"{CONFIG_NAME}: {difference} of {identity}")
    return config


def _section(value: object, path: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: text_config and vision_config must be JSON objects")
    return value


def _interval(text: Mapping[str, Any], path: Path) -> int | None:
    """Distance of full-attention layers, from the list of layer kinds that newer files have."""
    kinds = text.get("layer_types")
    if not isinstance(kinds, list):
        return None
    if "full_attention" not in kinds:
        raise CheckpointError(f"{path}: layer_types has no full_attention layer")
    interval = kinds.index("full_attention") + 1
    regular = [
        "full_attention" if (layer + 1) % interval == 0 else "linear_attention"
        for layer in range(len(kinds))
    ]
    if kinds != regular:
        raise CheckpointError(f"{path}: layer_types does not repeat every {interval} layers")
    return interval


def _has_mtp(text: Mapping[str, Any], path: Path) -> bool:
    layers = text.get("mtp_num_hidden_layers") or 0
    if layers not in (0, 1):
        raise CheckpointError(f"{path}: mtp_num_hidden_layers is {layers}; 0 or 1 can be stored")
    return bool(layers)


def _drafter_fields(drafter: Checkpoint) -> dict[str, Any]:
    root = read_json(drafter.folder / CONFIG_NAME)
    nested = root.get("dflash_config")
    sizes = {**root, **(nested if isinstance(nested, dict) else {})}
    second = any(name.startswith("candidate_selector.") for name in drafter.names)
    return {"dflash2_config" if second else "dflash_config": sizes}


def _difference(found: Any, wanted: Any, path: str) -> str:
    """The first member that differs, in words; empty when all are equal."""
    if not (is_dataclass(found) and is_dataclass(wanted)):
        return "" if found == wanted else f"{path} is {found}, not the {wanted}"
    for member in fields(found):
        name = f"{path}.{member.name}"
        text = _difference(getattr(found, member.name), getattr(wanted, member.name), name)
        if text:
            return text
    return ""
