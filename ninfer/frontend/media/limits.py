"""How much work the media of one request may ask for, and the sum of what they did ask for."""

from dataclasses import dataclass

from ninfer.errors import PromptError


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Bounds over all media of a request, or over each one where that is said."""

    items: int | None = None  # None: the other bounds suffice
    media_bytes: int = 256 << 20  # as they arrive: files, downloads, decoded data URIs
    image_pixels: int = 1 << 26  # of one picture, or of one frame of a video, before resizing
    video_pixels: int = 1 << 27  # of one video: frames x height x width, after resizing
    source_frames: int = 100_000  # of one video
    video_seconds: float = 600.0  # of one video
    tokens: int = 1 << 15  # placeholders; each stands for merge x merge patches
    attention_pairs: int | None = None  # pairs of patches that see each other; None: no bound


class Work:
    """What the media of one request have asked for so far; each method adds and checks."""

    def __init__(self, limits: MediaLimits) -> None:
        self.limits = limits
        self._items = 0
        self._bytes = 0
        self._tokens = 0
        self._pairs = 0

    @property
    def bytes_left(self) -> int:
        """Bytes that further media may have."""
        return self.limits.media_bytes - self._bytes

    def add_item(self, place: str) -> None:
        """One more image or video. Raises PromptError beyond the limit."""
        self._items += 1
        _check(place, "images and videos", self._items, self.limits.items)

    def add_bytes(self, count: int, place: str) -> None:
        """Bytes of a source. Raises PromptError beyond the limit."""
        self._bytes += count
        _check(place, "bytes of media", self._bytes, self.limits.media_bytes)

    def add_grid(self, grid: tuple[int, int, int], merge: int, place: str) -> None:
        """A grid (T, H, W) of patches. Raises PromptError beyond the limit."""
        time, height, width = grid
        self._tokens += time * (height // merge) * (width // merge)
        self._pairs += time * (height * width) ** 2
        _check(place, "tokens of images and videos", self._tokens, self.limits.tokens)
        _check(place, "pairs of patches", self._pairs, self.limits.attention_pairs)


def _check(place: str, what: str, count: int, limit: int | None) -> None:
    if limit is not None and count > limit:
        raise PromptError(
            f"{place} brings the request to {count:,} {what}; the limit is {limit:,}: send fewer"
            " or smaller ones"
        )
