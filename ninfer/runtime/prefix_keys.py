"""Identity of a prompt, page by page: its tokens and media, chained by hash behind a salt."""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple

import numpy as np

from ninfer.request import Media, MediaRun
from ninfer.runtime.config import PAGE_SIZE

CHAIN_BYTES: Final = 20
_TOKEN: Final = np.dtype("<i4")
_PAGE_BYTES: Final = PAGE_SIZE * _TOKEN.itemsize
# First token within the page, tokens, first row of the media, grid (t, h, w); the digest follows.
_PART: Final = struct.Struct("<HHI3I")


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Tokens `start` to `start + length` stand for rows of a picture or video from `row` on.

    `grid` is (t, h, w) in merged blocks, as in `MediaRun`; positions follow from it.
    """

    start: int
    length: int
    row: int
    grid: tuple[int, int, int]
    digest: bytes


class PageContent(NamedTuple):
    """All that decides what a page holds, once the pages before it are given."""

    tokens: bytes  # PAGE_SIZE little-endian int32
    media: tuple[bytes, ...] = ()  # parts of media spans within the page, in order


def media_spans(runs: Iterable[MediaRun], media: Items[Media]) -> tuple[MediaSpan, ...]:
    """The media identity of a prepared prompt."""
    return tuple(
        MediaSpan(run.start, run.length, run.first_row, run.grid, media[run.media].digest)
        for run in runs
    )


def prefix_salt(fields: Mapping[str, object]) -> bytes:
    """What must be equal before any token is compared, as bytes that a person can read.

    Name everything that decides the bits of a page or state: artifact, KV format, activation type,
    drafter layers, and for entries that outlive the process the backend, device and torch version.
    """
    return "".join(f"{name}={fields[name]!r}\n" for name in sorted(fields)).encode()


def chain_hash(before: bytes, content: PageContent) -> bytes:
    """Hash [CHAIN_BYTES] of a page and, through `before`, of everything in front of it."""
    digest = hashlib.blake2b(before, digest_size=CHAIN_BYTES)
    digest.update(content.tokens)
    for part in content.media:
        digest.update(struct.pack("<I", len(part)) + part)
    return digest.digest()


def root_hash(salt: bytes) -> bytes:
    """Where the chain of a salt begins."""
    return hashlib.blake2b(salt, digest_size=CHAIN_BYTES).digest()


def difference(one: PageContent, other: PageContent) -> tuple[int, bool] | None:
    """First token of the page that differs, and whether only its media do; None when equal."""
    token = _first_token(one.tokens, other.tokens)
    media = _first_media(one.media, other.media)
    if token is None and media is None:
        return None
    if token is None or (media is not None and media <= token):
        assert media is not None
        return media, True
    return token, False


def _first_token(one: bytes, other: bytes) -> int | None:
    if one == other:
        return None
    unequal = np.frombuffer(one, _TOKEN) != np.frombuffer(other, _TOKEN)
    return int(unequal.argmax())


def _first_media(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> int | None:
    for left, right in zip_longest(one, other):
        if left != right:
            return min(_start(part) for part in (left, right) if part is not None)
    return None


def _start(part: bytes) -> int:
    first: int = _PART.unpack_from(part)[0]
    return first


class PrefixKey:
    """Tokens and media of one prompt behind a salt; hashes are made when first asked for.

    Spans are in order and do not overlap. Keys are never changed: `extended` gives a longer one.
    """

    def __init__(self, tokens: Items[int], salt: bytes, spans: Items[MediaSpan] = ()) -> None:
        self.salt = salt
        self._words = np.asarray(tokens, dtype=_TOKEN).tobytes()
        self._media = _parts(spans)
        self._chain = [root_hash(salt)]

    def __len__(self) -> int:
        return len(self._words) // _TOKEN.itemsize

    @property
    def pages(self) -> int:
        """Whole pages."""
        return len(self._words) // _PAGE_BYTES

    @property
    def reusable(self) -> int:
        """Whole pages that leave at least one token to prefill: without one there are no logits."""
        return max(len(self) - 1, 0) // PAGE_SIZE

    def page(self, index: int) -> PageContent:
        """Content of whole page `index`."""
        assert 0 <= index < self.pages, index
        words = self._words[index * _PAGE_BYTES : (index + 1) * _PAGE_BYTES]
        return PageContent(words, self._media.get(index, ()))

    def chain(self, pages: int) -> bytes:
        """Hash of the first `pages` pages; of the salt alone for 0."""
        while len(self._chain) <= pages:
            self._chain.append(chain_hash(self._chain[-1], self.page(len(self._chain) - 1)))
        return self._chain[pages]

    def extended(self, tokens: Items[int]) -> "PrefixKey":
        """This key followed by generated tokens; hashes made so far are kept."""
        longer = PrefixKey((), self.salt)
        longer._words = self._words + np.asarray(tokens, dtype=_TOKEN).tobytes()
        longer._media = self._media
        longer._chain = list(self._chain)
        return longer


def _parts(spans: Items[MediaSpan]) -> dict[int, tuple[bytes, ...]]:
    """Spans cut at page borders: page -> its parts."""
    parts: dict[int, tuple[bytes, ...]] = {}
    for span in spans:
        start, stop = span.start, span.start + span.length
        while start < stop:
            page = start // PAGE_SIZE
            end = min(stop, (page + 1) * PAGE_SIZE)
            row = span.row + start - span.start
            head = _PART.pack(start - page * PAGE_SIZE, end - start, row, *span.grid)
            parts[page] = (*parts.get(page, ()), head + span.digest)
            start = end
    return parts
