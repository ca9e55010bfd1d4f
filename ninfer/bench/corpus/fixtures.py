"""Fixtures: questions with a limit and a contract, in TOML files; pictures and texts are drawn.

A content part `{draw = "name"}` is the picture or video of that name in `pictures.py`; a message
with `needle` is a long text around one sentence (`needles.py`).
"""

import importlib.resources
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from ninfer.audit.contracts import parse_check
from ninfer.bench.corpus.needles import needle_text
from ninfer.bench.corpus.pictures import drawn_part
from ninfer.errors import UsageError

WARM_UP: Final = "warm_up"
# Set -> files of fixtures.
_SETS: Final[Mapping[str, tuple[str, ...]]] = {
    "tiny": ("tiny",),
    "text": ("needle_8k", "reasoning", "code", "story", "translation", "structured", "cases"),
    "long": ("needle_long",),
    "media": ("media",),
    "full": (
        *("needle_8k", "needle_long", "reasoning", "code", "story", "translation", "structured"),
        *("cases", "media"),
    ),
}
_MEMBERS: Final = frozenset(
    {"name", "category", "prompt", "messages", "max_new", "thinking", "contract", "tokens"}
)


@dataclass(frozen=True, slots=True)
class Fixture:
    """One question. `tokens` is about how long the prompt is; None for a short one."""

    name: str
    category: str
    messages: tuple[Mapping[str, Any], ...]
    max_new: int
    thinking: bool = False
    contract: Mapping[str, Any] | None = None
    tokens: int | None = None

    @property
    def has_media(self) -> bool:
        """Whether a message shows an image or a video."""
        return any(
            isinstance(part, Mapping) and part.get("type") in ("image_url", "video_url")
            for message in self.messages
            for part in (message["content"] if isinstance(message["content"], list) else ())
        )


def set_names() -> list[str]:
    """The names of the sets."""
    return list(_SETS)


def load_fixtures(name: str, wanted: Iterable[str] = ()) -> list[Fixture]:
    """The fixtures of a set, or those of it with one of these names or categories.

    Raises UsageError for a set or a wanted name that is none.
    """
    if name not in _SETS:
        raise UsageError(f"--set {name}: must be one of {', '.join(_SETS)}")
    fixtures = [fixture for file in _SETS[name] for fixture in _file(file)]
    wanted = tuple(wanted)
    for word in wanted:
        if not any(word in (fixture.name, fixture.category) for fixture in fixtures):
            known = ", ".join(dict.fromkeys(fixture.category for fixture in fixtures))
            raise UsageError(
                f"--fixture {word}: set {name} has no such fixture; categories: {known}"
            )
    return [f for f in fixtures if not wanted or {f.name, f.category} & set(wanted)]


def warm_up() -> Fixture:
    """What is asked first in every mode, and not counted."""
    return Fixture(
        WARM_UP, WARM_UP, ({"role": "user", "content": "Say a short hello."},), max_new=32
    )


@cache
def _file(name: str) -> tuple[Fixture, ...]:
    folder = importlib.resources.files("ninfer.bench.corpus") / "fixtures"
    values = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    return tuple(_fixture(item, f"{name}.toml[{n}]") for n, item in enumerate(values["fixture"]))


def _fixture(values: Mapping[str, Any], where: str) -> Fixture:
    assert set(values) <= _MEMBERS, (where, set(values) - _MEMBERS)
    contract = values.get("contract")
    if contract is not None:
        parse_check(contract, f"{where}.contract")
    messages = values.get("messages") or [{"role": "user", "content": values["prompt"]}]
    return Fixture(
        name=values["name"],
        category=values["category"],
        messages=tuple(map(_message, messages)),
        max_new=values["max_new"],
        thinking=values.get("thinking", False),
        contract=contract,
        tokens=values.get("tokens"),
    )


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message["content"]
    if "needle" in message:
        text = needle_text(message["needle"], message["tokens"], message["position"])
        return {"role": message["role"], "content": content.replace("{text}", text)}
    if isinstance(content, str):
        return {"role": message["role"], "content": content}
    return {"role": message["role"], "content": _parts(content)}


def _parts(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [drawn_part(part["draw"]) if "draw" in part else dict(part) for part in parts]
