"""What is served by default on which card: the artifact, and options of `ninfer serve` for it."""

from dataclasses import dataclass
from typing import Final

from ninfer.cards import Card
from ninfer.errors import UsageError

_BLACKWELL: Final = 100
_GB: Final = 1e9


@dataclass(frozen=True, slots=True)
class Model:
    """One artifact: its name for `ninfer fetch`, bytes to download, least capability times ten."""

    name: str
    bytes: float
    capability: int = 0
    packaged: bool = False


# The most that a revision of each takes, so that the disk is judged on the safe side.
MODELS: Final = {
    model.name: model
    for model in (
        Model("nvfp4-27b", 18.4 * _GB, _BLACKWELL),
        Model("int-27b", 17.5 * _GB),
        Model("qwen38-27b", 20.5 * _GB),
        Model("qwen38-nvfp4-27b", 23.8 * _GB, _BLACKWELL),
        Model("moe-35b", 22.8 * _GB),
        Model("tiny", 0, packaged=True),
        Model("tiny-moe", 0, packaged=True),
    )
}

_SPECULATION: Final = ("--spec", "mtp", "--draft-tokens", "3", "--lm-head-draft")
_LARGE: Final = (
    *("--max-context", "32768", "--kv-capacity", "auto", "--kv-dtype", "int8"),
    *("--max-concurrency", "8", *_SPECULATION, "--no-thinking"),
)
_24_GB: Final = (
    *("--max-context", "65536", "--kv-capacity", "65536", "--kv-dtype", "int8"),
    *("--max-concurrency", "4", "--max-pending-requests", "32", "--prefill-chunk", "1024"),
    *(*_SPECULATION, "--no-thinking", "--temperature", "0.6", "--top-p", "0.95"),
    *("--default-max-tokens", "8192"),
)
# Its drafter is another one, and it has no head of frequent tokens.
_DRAFTS: Final = {"moe-35b": ("--spec", "dflash")}


def default_model(card: Card | None) -> str:
    """The name of the artifact for a card; `tiny` where there is none."""
    if card is None:
        return "tiny"
    return "nvfp4-27b" if card.capability >= _BLACKWELL else "qwen38-27b"


def model_named(name: str) -> Model:
    """The artifact of that name. Raises UsageError listing the known ones."""
    if name not in MODELS:
        raise UsageError(f"model {name!r}: unknown; known: {', '.join(MODELS)}")
    return MODELS[name]


def check_card(model: Model, card: Card | None) -> None:
    """Refuse an artifact that the card cannot compute with. Raises UsageError."""
    if card is not None and card.capability < model.capability:
        raise UsageError(
            f"model {model.name}: needs capability {model.capability / 10:g}, {card.name} has "
            f"{card.capability / 10:g}; take int-27b or qwen38-27b"
        )


def profile(model: Model, card: Card | None) -> tuple[str, ...]:
    """Options of `ninfer serve`: a card of at most 24 GiB keeps less beside the weights."""
    if model.packaged or card is None:
        return ()
    options = _24_GB if card.memory_gib <= 24 else _LARGE
    drafts = _DRAFTS.get(model.name)
    if drafts is None:
        return options
    start = options.index("--spec")
    return (*options[:start], *drafts, *options[start + len(_SPECULATION) :])
