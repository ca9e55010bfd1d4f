"""Video files to evenly spaced RGB frames and the times at which they stand."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import av
import numpy as np
from PIL import Image

from ninfer.errors import PromptError
from ninfer.frontend.media.limits import MediaLimits
from ninfer.frontend.media.patches import Pixels, fit, resize
from ninfer.frontend.media.sizes import PixelSizes, VideoSizes

# Containers that hold their frames themselves. Others, playlists for one, name further files or
# addresses, which a request must not make this machine open.
_CONTAINERS: Final = "matroska,webm,mov,mp4,avi,mpegts,mpeg,mpegvideo,flv,ogg,gif,asf"

# What the published processors assume when a file does not say.
_UNKNOWN_FPS: Final = 24.0


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a video file says of itself, and how many frames it was found to have."""

    frames: int
    fps: float
    height: int
    width: int


def frame_indices(frames: int, fps: float, sizes: VideoSizes) -> list[int]:
    """Which of a video's frames are looked at: evenly spaced, the first and the last among them.

    Their number is `sizes.fps` a second, within the bounds on frames and never more than there are.
    """
    wanted = int(frames / fps * sizes.fps)
    count = min(max(wanted, sizes.min_frames), sizes.max_frames, frames)
    return [round(place) for place in np.linspace(0, frames - 1, count).tolist()]


def step_times(indices: Sequence[int], fps: float, temporal: int) -> tuple[float, ...]:
    """Seconds of each time step: the mean over its first and last frame, the last one repeated."""
    whole = [*indices, *[indices[-1]] * (-len(indices) % temporal)]
    pairs = zip(whole[::temporal], whole[temporal - 1 :: temporal], strict=True)
    return tuple((first / fps + last / fps) / 2 for first, last in pairs)


def frame_size(
    height: int, width: int, frames: int, sizes: PixelSizes, place: str
) -> tuple[int, int]:
    """Height and width after resizing, for a video of `frames` frames.

    A side below the cell counts as scaled up to it, the other side with it. Raises PromptError for
    a strip longer than 200 to 1.
    """
    if min(height, width) < sizes.cell:
        factor = max(sizes.cell / height, sizes.cell / width)
        height, width = int(height * factor), int(width * factor)
    padded = frames + -frames % sizes.temporal
    return fit(height, width, sizes, place, frames=frames, padded=padded)


def load_frames(
    data: bytes, sizes: VideoSizes, limits: MediaLimits, place: str
) -> tuple[list[Pixels], tuple[float, ...]]:
    """Chosen frames [height, width, 3], resized, and the seconds of each time step.

    Raises PromptError for a file that is no video, is damaged, or exceeds the limits.
    """
    facts = _survey(data, limits, place)
    count = facts.frames
    while count:
        indices = frame_indices(count, facts.fps, sizes)
        height, width = frame_size(facts.height, facts.width, len(indices), sizes.pixels, place)
        if len(indices) * height * width > limits.video_pixels:
            raise PromptError(
                f"{place}: {len(indices)} frames of {width} x {height} pixels are more than"
                f" {limits.video_pixels:,} pixels"
            )
        frames, seen = _decode(data, indices, (height, width), limits, place)
        if len(frames) == len(indices):
            return frames, step_times(indices, facts.fps, sizes.pixels.temporal)
        # Some codecs have packets that show nothing, and files are cut off: count what is there.
        assert seen < count
        count = seen
    raise PromptError(f"{place} is a video without a frame that can be decoded")


def _survey(data: bytes, limits: MediaLimits, place: str) -> SourceFacts:
    """Count the frames of the first video stream without decoding them."""
    with _opened(data, limits, place) as (container, stream):
        frames = 0
        for packet in container.demux(stream):
            # The last, empty packet only flushes decoders.
            frames += packet.size > 0
            if frames > limits.source_frames:
                raise PromptError(f"{place} has more than {limits.source_frames:,} frames")
        fps = float(stream.average_rate or 0) or _UNKNOWN_FPS
        height, width = stream.codec_context.height, stream.codec_context.width
    if not frames or height < 1 or width < 1:
        raise PromptError(f"{place} is a video without frames")
    if frames / fps > limits.video_seconds:
        raise PromptError(
            f"{place} lasts {frames / fps:.0f} s; at most {limits.video_seconds:.0f} s are read"
        )
    if height * width > limits.image_pixels:
        raise PromptError(
            f"{place} has frames of {width} x {height} pixels; at most {limits.image_pixels:,} are"
            " decoded"
        )
    return SourceFacts(frames, fps, height, width)


def _decode(
    data: bytes, indices: Sequence[int], size: tuple[int, int], limits: MediaLimits, place: str
) -> tuple[list[Pixels], int]:
    """The frames of these ascending indices as far as the file has them, and how many it showed."""
    wanted = set(indices)
    kept: list[Pixels] = []
    seen = 0
    with _opened(data, limits, place) as (container, stream):
        for frame in container.decode(stream):
            if frame.width * frame.height > limits.image_pixels:
                raise PromptError(
                    f"{place}: frame {seen} has {frame.width} x {frame.height} pixels"
                )
            if seen in wanted:
                kept.append(resize(Image.fromarray(frame.to_ndarray(format="rgb24")), *size))
            seen += 1
            if len(kept) == len(wanted):
                break
    return kept, seen


@contextmanager
def _opened(
    data: bytes, limits: MediaLimits, place: str
) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    try:
        options = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "none"}
        with av.open(io.BytesIO(data), mode="r", options=options) as container:
            if not container.streams.video:
                raise PromptError(f"{place} has no video stream")
            stream = container.streams.video[0]
            # PyAV leaves this empty for a codec that it has no decoder for.
            if getattr(stream, "codec_context", None) is None:
                raise PromptError(f"{place} has a video stream of a codec that is not supported")
            # Against streams that turn out larger than their header says. Twice, as decoders count
            # the padding of their blocks; the exact check follows on each frame.
            stream.codec_context.options = {"max_pixels": str(2 * limits.image_pixels)}
            yield container, stream
    except (av.error.FFmpegError, ValueError) as error:
        raise PromptError(f"{place} cannot be read as a video: {error}") from None
