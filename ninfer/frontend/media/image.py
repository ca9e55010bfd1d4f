"""Image files to RGB pictures: a closed list of formats, bounded sizes, upright."""

import io
import struct
from typing import Final

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ninfer.errors import PromptError

# Other decoders of the library are never tried: they would only add ways to fail.
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
_NAMES: Final = "PNG, JPEG, WebP, GIF, BMP or TIFF"

# What the decoders raise for damaged files, besides their own errors (which are OSErrors).
_DAMAGE: Final = (
    *(OSError, ValueError, SyntaxError, EOFError, struct.error),
    *(LookupError, ArithmeticError, TypeError, AttributeError, MemoryError),
)


def decode_image(data: bytes, max_pixels: int, place: str) -> Image.Image:
    """The picture in RGB, turned upright by its EXIF orientation; of an animation the first frame.

    As in the usual preprocessing, transparency is dropped: the colour stored under it shows. Grey
    values of 16 bits keep their upper 8. Raises PromptError for another format, a damaged file and
    more than `max_pixels` pixels.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError:
        raise PromptError(
            f"{place} is not a {_NAMES} image ({_looks_like(data)}); convert it or leave it out"
        ) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PromptError(f"{place}: {error}") from None
    except _DAMAGE as error:
        raise _damaged(place, error) from None
    if image.width * image.height > max_pixels:
        raise PromptError(
            f"{place} has {image.width} x {image.height} pixels; at most {max_pixels:,} are decoded"
        )
    try:
        return _rgb(ImageOps.exif_transpose(image), place)
    except _DAMAGE as error:
        raise _damaged(place, error) from None


def _rgb(image: Image.Image, place: str) -> Image.Image:
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise PromptError(
            f"{place} has pixels of type {image.mode} (32 bits), which have no known range; convert"
            " it to 8 bits"
        )
    if image.mode == "P" and "transparency" in image.info:
        # Straight to RGB the library warns about the transparency that is dropped.
        image = image.convert("RGBA")
    return image.convert("RGB")


def _damaged(place: str, error: BaseException) -> PromptError:
    return PromptError(f"{place} cannot be decoded: {error or type(error).__name__}")


def _looks_like(data: bytes) -> str:
    head = data[:1024].lstrip().lower()
    if b"<svg" in head:
        return "it is SVG"
    if head.startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page"
    if head.startswith(b"%pdf"):
        return "it is PDF"
    if head[4:8] == b"ftyp":
        return f"it is a container of type {head[8:12].decode('ascii', 'replace')!r}"
    return f"it begins with {data[:8]!r}" if data else "it is empty"
