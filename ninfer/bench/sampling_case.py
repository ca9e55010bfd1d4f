"""Draws and log-probabilities to be measured: random logits, each call checked, then timed.

Logits come from the head's kernel, so they are in the last-level cache when their turn comes; here
they are as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.bench.replay import replayed
from ninfer.bench.report import Row, time_row
from ninfer.errors import FormatError
from ninfer.ops.sampling import fast, portable, reference
from ninfer.ops.sampling.fast_plan import DrawPlan
from ninfer.ops.selector import portable as selector
from ninfer.ops.selector import reference as selector_reference
from ninfer.ops.tensors import AllowedTokens, DrawSettings, TokenBias, TokenPenalties

ROWS: Final = (1, 8, 64)
VOCABULARY: Final = 248_320
LIMIT: Final = 248_077
DRAFT_ROWS: Final = 131_072
_COPIES: Final = 4
_TERABYTE: Final = 1e12


@dataclass(frozen=True, slots=True)
class Timed:
    """A call on logits in several copies, and the same by the reference."""

    name: str
    call: Callable[[Tensor], Any]
    expected: Callable[[Tensor], Any]
    logits: tuple[Tensor, ...]  # of one shape

    def by_cuda(self, plan: DrawPlan | None = None) -> "Timed | None":
        """The same draw by the CUDA form, with other sizes than its own if given; else None."""
        call = self.call
        if not isinstance(call, partial) or call.func is not portable.next_tokens:
            return None
        drawn = partial(fast.next_tokens, **call.keywords, plan=plan)
        return replace(self, name=f"{self.name} CUDA", call=drawn)

    def check(self) -> None:
        """Raise FormatError unless every copy gives the reference's ids, alone as in company."""
        for x in self.logits:
            got, want = _ids(self.call(x)), _ids(self.expected(x))
            if not torch.equal(got, want):
                wrong = int((got != want).sum())
                raise FormatError(
                    f"{self.name} of {x.shape[0]} rows: {wrong} ids differ from the reference's; "
                    "not timed"
                )


def sampling_rows(device: torch.device, read: float) -> list[Row]:
    """Every case for 1, 8 and 64 rows, beside the time of reading the logits once at `read` TB/s.

    Raises FormatError when a check fails.
    """
    return [row for count in ROWS for case in cases(count, device) for row in _rows(case, read)]


def cuda_rows(device: torch.device, read: float) -> list[Row]:
    """The same of the draws by the CUDA form.

    Raises FormatError when a check fails and UnsupportedError where the form cannot run.
    """
    rows: list[Row] = []
    for count in ROWS:
        found = cases(count, device)
        fast.ready(device, found[0].logits[0].dtype, LIMIT)
        for case in found:
            if (drawn := case.by_cuda()) is not None:
                rows += _rows(drawn, read)
    return rows


def _rows(case: "Timed", read: float) -> list[Row]:
    case.check()
    timing = replayed([partial(case.call, x) for x in case.logits])
    x = case.logits[0]
    seconds = x.numel() * x.element_size() / _TERABYTE / read
    shape: dict[str, int | str] = {"rows": x.shape[0], "V": x.shape[1]}
    return [time_row(case.name, shape, timing, ("one read", seconds), unit="us")]


def cases(
    rows: int, device: torch.device, vocabulary: int = VOCABULARY, limit: int = LIMIT
) -> list[Timed]:
    """The named cases for a number of rows."""
    generator = torch.Generator(device).manual_seed(rows)
    shape = (_COPIES, rows, vocabulary)
    noise = torch.randn(shape, device=device, generator=generator) * 3
    logits = tuple(noise.bfloat16().unbind())
    settings = {
        "sample, all filters": (
            _draws(rows, device, 0.7, 20, 0.95, 0.05),
            _rules(rows, vocabulary),
        ),
        "sample, top-p": (_draws(rows, device, 1.0, 0, 0.95, 0.0), {}),
        "sample, no cut": (_draws(rows, device, 1.0, 0, 1.0, 0.0), {}),
        "sample, greedy rows": (_draws(rows, device, 0.0, 0, 1.0, 0.0), {}),
    }
    found = [
        Timed(
            name,
            partial(portable.next_tokens, draws=draws, limit=limit, **_on(device, rules)),
            partial(reference.next_tokens, draws=draws, limit=limit, **_on(device, rules)),
            logits,
        )
        for name, (draws, rules) in settings.items()
    ]
    known = min(DRAFT_ROWS, limit)
    top = {"ids": torch.randperm(limit, generator=generator, device=device)[:known], "count": 16}
    pairs: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
        "argmax": (portable.argmax, reference.argmax, {"limit": limit}),
        "logprobs, top 20": (
            portable.top_logprobs,
            reference.top_logprobs,
            {"limit": limit, "n": min(20, limit)},
        ),
        "draft candidates, top 16": (selector.indexed_top, selector_reference.indexed_top, top),
    }
    found += [
        Timed(name, partial(call, **given), partial(expected, **given), logits)
        for name, (call, expected, given) in pairs.items()
    ]
    return found


def _draws(
    rows: int, device: torch.device, heat: float, keep: int, nucleus: float, floor: float
) -> DrawSettings:
    def every(value: float) -> Tensor:
        return torch.full((rows,), value, dtype=torch.float64, device=device)

    index = torch.arange(rows, device=device)
    top_k = torch.full_like(index, keep)
    return DrawSettings(
        every(heat), top_k, every(nucleus), every(floor), index, 1000 + index, index.clamp_max(1)
    )


def _rules(rows: int, vocabulary: int) -> dict[str, Any]:
    """Eight biased ids, a history with three drafts, and a mask of half of the ids for each row."""
    generator = torch.Generator().manual_seed(rows)

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    index = torch.arange(rows)
    ids = torch.stack([torch.randperm(vocabulary, generator=generator)[:8] for _ in range(rows)])
    factors = (torch.full((rows,), value) for value in (0.5, 0.25, 1.1))
    counts = (integers(0, 200, rows, vocabulary) - 197).clamp_min(0).int()
    words = integers(-(2**31), 2**31, rows, -(-vocabulary // 32)).int()
    return {
        "bias": TokenBias(ids, torch.ones(rows, 8)),
        "penalties": TokenPenalties(counts, index, integers(0, vocabulary, rows, 3), *factors),
        "allowed": AllowedTokens(words, index),
    }


def _on(device: torch.device, views: dict[str, Any]) -> dict[str, Any]:
    """The views on a device."""
    return {
        name: replace(view, **{n: getattr(view, n).to(device) for n in view.__dataclass_fields__})
        for name, view in views.items()
    }


def _ids(result: Any) -> Tensor:
    """The integers of a result."""
    parts = result if isinstance(result, tuple) else (result,)
    (ids,) = [part for part in parts if not part.is_floating_point()]
    assert isinstance(ids, Tensor)
    return ids
