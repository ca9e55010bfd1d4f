"""Small pictures and videos as files, made from seeded numbers."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction

import av
import numpy as np
from PIL import Image

SIZES = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """A picture with smooth and sharp parts, so that resizing has something to get wrong."""
    draw = np.random.default_rng([seed, height, width])
    rows, columns = np.mgrid[:height, :width]
    waves = [
        127 * (1 + np.sin(rows / (5 + 3 * c) + columns / (11 - 2 * c))) for c in range(channels)
    ]
    grain = draw.integers(-90, 90, (height, width, channels))
    return np.clip(np.stack(waves, -1) + grain, 0, 255).astype(np.uint8)


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    """The picture as a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def png(height: int, width: int, seed: int = 0) -> bytes:
    """A PNG file of a noisy picture."""
    return encoded(Image.fromarray(noise(height, width, seed=seed)))


def clip(
    frames: Sequence[np.ndarray],
    rate: Fraction | int = 24,
    codec: str = "ffv1",
    form: str = "matroska",
) -> bytes:
    """A video file of RGB frames; the default codec keeps every bit."""
    file = io.BytesIO()
    with av.open(file, "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "bgr0" if codec == "ffv1" else "yuv420p"
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def data_uri(data: bytes, kind: str = "image/png") -> str:
    """The bytes as a data URI."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def with_media(resources: Mapping[str, bytes], **changes: object) -> dict[str, bytes]:
    """Resources with the files of the vision side; `changes` are of the one for images."""
    image = {**SIZES, "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}, **changes}
    video = {**SIZES, "size": {"shortest_edge": 4_096, "longest_edge": 25_165_824}}
    return {
        **resources,
        "frontend/preprocessor_config.json": json.dumps(image).encode(),
        "frontend/video_preprocessor_config.json": json.dumps(video).encode(),
    }
