"""Content parts to media: fetched, decoded, resized and cut into patches, within limits."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ninfer.errors import ArtifactError
from ninfer.frontend.media.cache import MediaCache
from ninfer.frontend.media.fetch import SourceRules, read_source
from ninfer.frontend.media.image import decode_image
from ninfer.frontend.media.limits import MediaLimits, Work
from ninfer.frontend.media.patches import Pixels, fit, patchify, resize
from ninfer.frontend.media.sizes import PixelSizes, VideoSizes, image_sizes, video_sizes
from ninfer.frontend.media.video import load_frames
from ninfer.request import ContentPart, Media, MediaKind, Message

_IMAGE_CONFIG: Final = "frontend/preprocessor_config.json"
_VIDEO_CONFIG: Final = "frontend/video_preprocessor_config.json"


class MediaLoader:
    """Loads the media of requests for one model. Shared by all requests; thread-safe."""

    def __init__(
        self,
        image: PixelSizes,
        video: VideoSizes,
        limits: MediaLimits | None = None,
        cache: MediaCache | None = None,
    ) -> None:
        """`cache` keeps what comes again; the default keeps nothing."""
        self.image: Final = image
        self.video: Final = video
        self.limits: Final = limits or MediaLimits()
        self.cache: Final = cache or MediaCache(0)
        if (image.patch, image.temporal, image.merge) != (
            *(video.pixels.patch, video.pixels.temporal),
            video.pixels.merge,
        ):
            raise ArtifactError(f"{_IMAGE_CONFIG} and {_VIDEO_CONFIG} have different patch sizes")

    @classmethod
    def from_resources(
        cls,
        resources: Mapping[str, bytes],
        limits: MediaLimits | None = None,
        cache: MediaCache | None = None,
    ) -> "MediaLoader":
        """Read an artifact's preprocessor files. Raises ArtifactError naming file and member."""
        for name in (_IMAGE_CONFIG, _VIDEO_CONFIG):
            if name not in resources:
                raise ArtifactError(f"resource {name} is missing")
        return cls(
            image_sizes(resources[_IMAGE_CONFIG], _IMAGE_CONFIG),
            video_sizes(resources[_VIDEO_CONFIG], _VIDEO_CONFIG),
            limits,
            cache,
        )

    def load(self, messages: Sequence[Message], rules: SourceRules) -> tuple[Media, ...]:
        """All images and videos in the order of parts, those of tool results included.

        Raises PromptError naming the part and what is wrong with it.
        """
        work = Work(self.limits)
        return tuple(
            self._part(part, part.place or f"messages[{m}].content[{p}]", rules, work)
            for m, message in enumerate(messages)
            for p, part in enumerate(message.content)
            if part.kind != "text"
        )

    def _part(self, part: ContentPart, place: str, rules: SourceRules, work: Work) -> Media:
        work.add_item(place)
        data = read_source(part.source, rules, work.bytes_left, place)
        work.add_bytes(len(data), place)
        assert part.kind != "text"
        key = self.cache.key(part.kind, data)
        media = self.cache.get(key)
        if media is not None:
            work.add_grid(media.grid, self.image.merge, place)
            return media
        media = (self._image if part.kind == "image" else self._video)(data, place, work)
        self.cache.put(key, media)
        return media

    def _image(self, data: bytes, place: str, work: Work) -> Media:
        sizes = self.image
        picture = decode_image(data, self.limits.image_pixels, place)
        height, width = fit(picture.height, picture.width, sizes, place)
        work.add_grid((1, height // sizes.patch, width // sizes.patch), sizes.merge, place)
        return media_of("image", [resize(picture, height, width)], sizes, ())

    def _video(self, data: bytes, place: str, work: Work) -> Media:
        sizes = self.video.pixels
        frames, times = load_frames(data, self.video, self.limits, place)
        height, width, _ = frames[0].shape
        grid = (len(times), height // sizes.patch, width // sizes.patch)
        work.add_grid(grid, sizes.merge, place)
        return media_of("video", frames, sizes, times)


def media_of(
    kind: MediaKind, frames: Sequence[Pixels], sizes: PixelSizes, times: tuple[float, ...]
) -> Media:
    """The media of these frames [height, width, 3], sides multiples of the cell.

    `times` are the seconds of a video's time steps.
    """
    patches, grid = patchify(frames, sizes)
    digest = hashlib.sha256(f"{kind} {grid}".encode())
    digest.update(np.ascontiguousarray(patches).data)
    return Media(kind, grid, patches, digest.digest(), times)
