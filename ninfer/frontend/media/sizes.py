"""Sizes of patches and pixel budgets, from the preprocessor files of a checkpoint.

The file format is that of Hugging Face image and video processors of the Qwen-VL family.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ninfer.errors import ArtifactError
from ninfer.json_text import parse_json

# The only normalisation that the vision tower does: from 0..255 to -1..1.
_MEAN: Final = [0.5, 0.5, 0.5]


@dataclass(frozen=True, slots=True)
class PixelSizes:
    """How pictures become patches. `low` and `high` bound the pixels after resizing."""

    patch: int  # side of a patch
    temporal: int  # frames in a patch
    merge: int  # patches on a side of a block that becomes one token
    low: int
    high: int

    @property
    def cell(self) -> int:
        """Pixels on a side of a block; both sides of a picture become multiples of it."""
        return self.patch * self.merge


@dataclass(frozen=True, slots=True)
class VideoSizes:
    """How videos become frames; for `pixels`, low and high count all frames together."""

    pixels: PixelSizes
    fps: float
    min_frames: int
    max_frames: int


def image_sizes(data: bytes, name: str) -> PixelSizes:
    """Read `preprocessor_config.json`. Raises ArtifactError naming the member."""
    return _pixels(_object(data, name), name)


def video_sizes(data: bytes, name: str) -> VideoSizes:
    """Read `video_preprocessor_config.json`; frame rules have the family's published defaults.

    Raises ArtifactError naming the member.
    """
    values = _object(data, name)
    fps = values.get("fps", 2)
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not fps > 0:
        raise ArtifactError(f"resource {name}: fps is {fps!r}, must be a positive number")
    return VideoSizes(
        pixels=_pixels(values, name),
        fps=float(fps),
        min_frames=_integer(values, "min_frames", name, 4),
        max_frames=_integer(values, "max_frames", name, 768),
    )


def _pixels(values: Mapping[str, Any], name: str) -> PixelSizes:
    for member in ("image_mean", "image_std"):
        if values.get(member, _MEAN) != _MEAN:
            raise ArtifactError(
                f"resource {name}: {member} is {values[member]!r}; only {_MEAN} is supported"
            )
    size = values.get("size")
    if not isinstance(size, dict):
        raise ArtifactError(f"resource {name}: size is {size!r}, must be an object")
    sizes = PixelSizes(
        patch=_integer(values, "patch_size", name),
        temporal=_integer(values, "temporal_patch_size", name),
        merge=_integer(values, "merge_size", name),
        low=_integer(size, "shortest_edge", name),
        high=_integer(size, "longest_edge", name),
    )
    if sizes.low > sizes.high:
        raise ArtifactError(f"resource {name}: size allows {sizes.low} to {sizes.high} pixels")
    return sizes


def _integer(values: Mapping[str, Any], member: str, name: str, default: int | None = None) -> int:
    value = values.get(member, default)
    if type(value) is not int or value <= 0:
        raise ArtifactError(f"resource {name}: {member} is {value!r}, must be a positive integer")
    return value


def _object(data: bytes, name: str) -> Mapping[str, Any]:
    values = parse_json(data, f"resource {name}", ArtifactError)
    if not isinstance(values, dict):
        raise ArtifactError(f"resource {name} must hold a JSON object")
    return values
