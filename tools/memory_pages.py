"""docs/memory.md: what each choice of residency takes in memory, from the plan the engine makes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ninfer.artifact import Identity
from ninfer.engine.options import EngineOptions
from ninfer.engine.plan import plan_engine
from ninfer.engine.registered import registered_sizes
from ninfer.runtime.memory_plan import ModelSizes
from tools.card_pages import card_sections
from tools.markdown import code, page, table

ARTIFACTS: Final = (
    Identity("qwen3.6-27b", "groupwise-int"),
    Identity("qwen3.6-35b-a3b", "groupwise-int"),
)
CONTEXT: Final = 131_072
SEQUENCES: Final = 4
CHOICES: Final[dict[str, dict[str, Any]]] = {
    "(none)": {},
    "--spec lookup": {"spec": "lookup"},
    "--spec mtp": {"spec": "mtp"},
    "--spec mtp --lm-head-draft": {"spec": "mtp", "lm_head_draft": True},
    "--spec dflash": {"spec": "dflash"},
    "--vision": {"vision": True},
    "--vision --host-vision": {"vision": True, "host_vision": True},
    "--host-embeddings": {"host_embeddings": True},
    "--kv-dtype int8": {"kv_dtype": "int8"},
    "--kv-dtype fp8": {"kv_dtype": "fp8"},
    "--kv-dtype int4": {"kv_dtype": "int4"},
    "--state-dtype bf16": {"state_dtype": "bf16"},
    "--kv-dtype int8 --spec mtp --vision": {"kv_dtype": "int8", "spec": "mtp", "vision": True},
}
_MIB: Final = 1 << 20
# Enough for any of them: nothing may give way here.
_MEMORY: Final = 1 << 50
_BF16_BYTES: Final = 2


def parts_of(model: ModelSizes, choice: dict[str, Any]) -> dict[str, int]:
    """Bytes by part, for options of which all but the choice are the same."""
    options = EngineOptions(
        artifact=Path("model.ninfer"),
        weights="packed",
        max_context=CONTEXT,
        max_concurrency=SEQUENCES,
        kv_capacity=CONTEXT,
        **choice,
    )
    return dict(plan_engine(options, model, _MEMORY, _BF16_BYTES).memory.parts)


def memory(root: Path) -> str | None:
    """The page; None before the engine has a plan."""
    if not (root / "ninfer" / "engine" / "plan.py").exists():
        return None
    body = [line for identity in ARTIFACTS for line in section(identity)]
    body += card_sections()
    intro = (
        f"MiB that the engine plans on a device for {SEQUENCES} sequences that share "
        f"{CONTEXT:,} tokens of KV cache, packed weights, BF16 activations and the defaults of "
        "all other options; `ninfer plan` says it for an artifact and options of yours. What is "
        "not asked for takes nothing. The plan is arithmetic over tensor sizes: these are not "
        "measurements."
    )
    return page("Memory", intro, body)


def section(identity: Identity) -> Iterator[str]:
    """Heading and table of one artifact, the columns being the parts that any choice has."""
    model = registered_sizes(identity)
    found = {
        name: parts_of(model, choice)
        for name, choice in CHOICES.items()
        if choice.get("spec", "lookup") in {"lookup", *model.weights}
    }
    parts = list(dict.fromkeys(part for row in found.values() for part in row if row[part]))
    yield from (f"## {identity.model_id}, {identity.weights_id}", "")
    rows = [
        (code(name), *(_mib(row.get(part, 0)) for part in parts), _mib(sum(row.values())))
        for name, row in found.items()
    ]
    yield from table(["options", *parts, "all"], rows)
    yield ""


def _mib(size: int) -> str:
    return f"{size / _MIB:,.1f}" if size else "0"
