"""Modes: names of what drafts tokens, `mtp3` for one, and the engine options that they mean."""

import re
from dataclasses import dataclass, replace
from typing import Final

from ninfer.engine.options import MOST_DRAFTS, EngineOptions
from ninfer.errors import UsageError

PLAIN: Final = "plain"
_NAME: Final = re.compile(r"(mtp|dflash2|dflash|lookup)(?:-?([0-9]{1,2}))?")


@dataclass(frozen=True, slots=True)
class Mode:
    """A name, and what it means: no drafter, or one with a fixed or an adaptive window."""

    name: str
    spec: str | None = None
    draft_tokens: int | None = None

    def applied(self, options: EngineOptions) -> EngineOptions:
        """The options of an engine in this mode. A window that is named is always tried whole."""
        fixed = self.draft_tokens is not None
        return replace(
            options,
            spec=self.spec,
            draft_tokens=self.draft_tokens,
            adaptive_drafts=not fixed and options.adaptive_drafts,
            lm_head_draft=options.lm_head_draft and self.spec is not None,
        )


def parse_modes(text: str) -> list[Mode]:
    """Modes from names with commas, each once. Raises UsageError naming the one that is none."""
    return [_mode(name) for name in dict.fromkeys(part.strip() for part in text.split(","))]


def _mode(name: str) -> Mode:
    if name == PLAIN:
        return Mode(name)
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"--mode {name!r}: must be plain, lookup, mtp3, dflash7 or dflash2-7")
    spec, count = match[1], int(match[2]) if match[2] else None
    if count is not None and not 1 <= count <= MOST_DRAFTS[spec]:
        raise UsageError(f"--mode {name}: {spec} drafts 1..{MOST_DRAFTS[spec]} tokens")
    return Mode(name, spec, count)
