"""Drawn pictures and clips as the engine's media: as files in data URIs, and without any file.

A clip is an MP4 file of lossless H.264 in RGB, so that decoding gives back the very pixels.
"""

import base64
import io
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Final

import av
import numpy as np
from av.bitstream import BitStreamFilterContext
from numpy.typing import NDArray
from PIL import Image

from ninfer.frontend.media import MediaLoader, load
from ninfer.frontend.media.patches import fit
from ninfer.frontend.media.video import frame_size, step_times
from ninfer.request import Media, MediaKind
from recipes.tiny.encode import TOKENIZER_FOLDER, read_resources
from recipes.tiny.sample import Sample

# Frames of a time step, as in the preprocessor files.
TEMPORAL: Final = 2

_LOSSLESS: Final = {"qp": "0", "preset": "veryslow", "x264-params": "threads=1"}


@cache
def checkpoint_loader() -> MediaLoader:
    """The engine's loader with the preprocessor files of the demo checkpoints."""
    return MediaLoader.from_resources(read_resources(TOKENIZER_FOLDER))


def media_of(
    array: NDArray[np.uint8], timestamps: Sequence[float] = (), kind: MediaKind = "image"
) -> Media:
    """The media of frames [frames, height, width, 3], `timestamps` for a video.

    Raises ValueError for a size that preprocessing would change.
    """
    loader = checkpoint_loader()
    count, height, width, _ = array.shape
    if kind == "image":
        sizes = loader.image
        fitting = fit(height, width, sizes, kind)
    else:
        sizes = loader.video.pixels
        fitting = frame_size(height, width, count, sizes, kind)
    if fitting != (height, width):
        raise ValueError(
            f"{kind} of {width} x {height} pixels would become {fitting[1]} x {fitting[0]}; draw it"
            " in that size"
        )
    return load.media_of(kind, list(array), sizes, tuple(timestamps))


def clip_times(count: int, fps: float) -> tuple[float, ...]:
    """Seconds of the time steps of a clip all of whose frames are looked at."""
    return step_times(range(count), fps, TEMPORAL)


def data_uri(sample: Sample, index: int) -> str:
    """Media number `index` of a sample as a file without loss: WebP for an image, MP4 for a video.

    WebP takes half of the bytes of PNG.
    """
    frames = sample.media[index]
    times = sample.timestamps[index] if sample.timestamps else ()
    if times:
        return _uri("video/mp4", encode_clip(frames, _fps(times)))
    file = io.BytesIO()
    Image.fromarray(frames[0]).save(file, "WEBP", lossless=True, quality=50, method=3, exact=True)
    return _uri("image/webp", file.getvalue())


def encode_clip(frames: NDArray[np.uint8], fps: Fraction) -> bytes:
    """An MP4 file of frames [frames, height, width, 3], without loss."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264rgb", rate=fps, options=_LOSSLESS)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "rgb24"
        # The encoder's note about itself would be a fifth of the file.
        plain = BitStreamFilterContext("filter_units=remove_types=6", stream)
        pictures = (av.VideoFrame.from_ndarray(frame, format="rgb24") for frame in frames)
        for picture in (*pictures, None):
            for packet in stream.encode(picture):
                container.mux(plain.filter(packet))
    return file.getvalue()


def _fps(times: Sequence[float]) -> Fraction:
    """Frames a second of a clip from its first time step, half way between frames 0 and 1."""
    return Fraction(1, 2) / Fraction(times[0]).limit_denominator(1000)


def _uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
