"""Attention over a paged cache to be measured: random cache, its check, and torch beside it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ninfer.bench.replay import copies_for
from ninfer.errors import FormatError
from ninfer.formats import kv
from ninfer.formats.registry import kv_format
from ninfer.ops.attention import portable, reference
from ninfer.ops.kv_cache.reference import read_pages
from ninfer.ops.tensors import PagedKV, RaggedRows
from ninfer.ops.tolerance import BF16, in_row_sizes

_PAGE: Final = 64
# Positions whose keys and values are drawn and encoded at a time.
_DRAWN: Final = 16384


@dataclass(frozen=True, slots=True)
class Attention:
    """The last rows of one sequence, its cache in several copies on shuffled pages."""

    form: str
    heads: tuple[int, int]  # query, KV
    dim: int
    length: int
    caches: tuple[PagedKV, ...]
    table: Tensor  # [1, P]
    q: Tensor  # [T, Hq, D] of the most rows
    attend: Callable[..., Tensor] | None = None  # the form that is measured, or the portable one

    @property
    def bytes(self) -> int:
        """Bytes of keys, values and scales that one call must read."""
        return self.length * kv_format(self.form).bytes_per_token(self.heads[1], self.dim)

    def operations(self, tokens: int) -> int:
        """Multiplications and additions of one call."""
        seen = tokens * self.length - tokens * (tokens - 1) // 2
        return 4 * self.heads[0] * self.dim * seen

    def rows(self, tokens: int) -> RaggedRows:
        """`tokens` rows at the end of the sequence."""
        device = self.q.device
        offsets = torch.tensor([0, tokens], device=device)
        lengths = torch.tensor([self.length], device=device)
        return RaggedRows(offsets, lengths, self.table, torch.zeros_like(lengths))

    def calls(self, tokens: int) -> list[Callable[[], Tensor]]:
        """One call for each copy; some more when the copies are few."""
        rows, scale = self.rows(tokens), self.dim**-0.5
        attend = self.attend or portable.paged_attention
        order = list(self.caches) * ceil(4 / len(self.caches))
        return [partial(attend, self.q[-tokens:], cache, rows, scale=scale) for cache in order]

    def torch_calls(self, tokens: int) -> list[Callable[[], Tensor]]:
        """torch's own attention over the same numbers in bf16, already contiguous."""
        q = self.q[-tokens:].transpose(0, 1).unsqueeze(0).contiguous()
        group = self.heads[0] // self.heads[1]
        hidden = torch.ones(tokens, self.length, dtype=torch.bool, device=self.q.device)
        mask = None if tokens == 1 else hidden.tril(self.length - tokens)
        causal = tokens == self.length
        found: list[Callable[[], Tensor]] = []
        for cache in self.caches:
            parts = read_pages(cache, self.table[0], self.length)
            keys, values = (
                x.bfloat16().transpose(0, 1).repeat_interleave(group, 0).unsqueeze(0).contiguous()
                for x in parts
            )
            call = partial(scaled_dot_product_attention, q, keys, values, scale=self.dim**-0.5)
            found.append(partial(call, attn_mask=None if causal else mask, is_causal=causal))
        return found * ceil(4 / len(found))


def attention(
    form: str, heads: tuple[int, int], dim: int, length: int, tokens: int, device: torch.device
) -> Attention:
    """A sequence of a length in a KV format, with up to `tokens` rows to compute."""
    generator = torch.Generator(device).manual_seed(length)
    entry = kv_format(form)
    pages = -(-length // _PAGE)
    copies = copies_for(length * entry.bytes_per_token(heads[1], dim))
    caches = tuple(_cache(form, pages, heads[1], dim, generator) for _ in range(min(copies, 32)))
    order = torch.randperm(pages, generator=generator, device=device)
    shape = (tokens, heads[0], dim)
    q = torch.randn(shape, generator=generator, device=device).bfloat16()
    return Attention(form, heads, dim, length, caches, order.unsqueeze(0), q)


def _cache(form: str, pages: int, heads: int, dim: int, generator: torch.Generator) -> PagedKV:
    planes: list[tuple[Tensor, Tensor | None]] = []
    for _ in range(2):
        parts = []
        for start in range(0, pages, _DRAWN // _PAGE):
            count = min(_DRAWN // _PAGE, pages - start)
            shape = (count, _PAGE, heads, dim)
            drawn = torch.randn(shape, generator=generator, device=generator.device)
            parts.append(kv.encode(form, drawn))
        scales = [part[1] for part in parts if part[1] is not None]
        words = torch.cat([part[0] for part in parts])
        planes.append((words, torch.cat(scales) if scales else None))
    (keys, key_scales), (values, value_scales) = planes
    return PagedKV(form, keys, values, key_scales, value_scales)


def expected(case: Attention, tokens: int) -> Tensor:
    """Float32 attention in torch over the first copy of the cache, of so many rows."""
    q = case.q[-tokens:].float()
    return reference.paged_attention(q, case.caches[0], case.rows(tokens), scale=case.dim**-0.5)


def check(case: Attention, tokens: tuple[int, ...], want: Tensor | None = None) -> None:
    """Raise FormatError unless each token count gives right rows, the same bits for all counts.

    `want` is what `expected` gives for the most tokens, where it is known already.

    Right: each row within the bf16 criterion of float32 attention in torch, by its own size, and
    nothing left unwritten.
    """
    most = max(tokens)
    want = expected(case, most) if want is None else want
    widest = case.calls(most)[0]()
    for count in tokens:
        out = case.calls(count)[0]()
        found = BF16.violation(*in_row_sizes(out, want[-count:]))
        if found is None and not torch.equal(
            out.view(torch.int16), widest[-count:].view(torch.int16)
        ):
            found = f"rows differ from those of {most} tokens"
        if found is not None:
            raise FormatError(
                f"attention {case.form} of {case.length} positions for {count} tokens: {found}; "
                "not timed"
            )
