"""Images against the published processor, file formats, and damaged or hostile files."""

import io
import struct
import zlib

import numpy as np
import pytest
from media_files import encoded, noise, png
from PIL import Image
from transformers import Qwen2VLImageProcessorPil
from transformers.image_utils import load_image

from ninfer.errors import PromptError
from ninfer.frontend.media import MediaLimits, MediaLoader
from ninfer.frontend.media.fetch import SourceRules
from ninfer.frontend.media.image import decode_image
from ninfer.frontend.media.patches import fit, patchify, resize
from ninfer.frontend.media.sizes import PixelSizes, VideoSizes
from ninfer.request import ContentPart, Message

SIZES = PixelSizes(patch=16, temporal=2, merge=2, low=65_536, high=16_777_216)
VIDEO = VideoSizes(PixelSizes(16, 2, 2, 4_096, 25_165_824), 2.0, 4, 768)
PIXELS = 1 << 26
REFERENCE = Qwen2VLImageProcessorPil(
    patch_size=16,
    temporal_patch_size=2,
    merge_size=2,
    size={"shortest_edge": SIZES.low, "longest_edge": SIZES.high},
    image_mean=[0.5] * 3,
    image_std=[0.5] * 3,
)
NAMED_SIZES = [
    *((1, 1), (10, 10), (1, 200), (200, 1), (5, 1000), (1000, 5), (1024, 484), (484, 1024)),
    *((31, 33), (48, 80), (16, 16), (255, 257), (256, 256), (1080, 1920), (2160, 3840)),
    *((2, 399), (17, 3400), (720, 1280)),
]


def drawn_sizes() -> list[tuple[int, int]]:
    """Sizes of every magnitude up to 1,000, within the aspect ratio."""
    draw = np.random.default_rng(5)
    sizes: list[tuple[int, int]] = []
    while len(sizes) < 200 - len(NAMED_SIZES):
        height, width = (int(v) for v in np.exp(draw.uniform(0, np.log(1000), 2)))
        if max(height, width) <= 200 * min(height, width):
            sizes.append((height, width))
    return sizes


@pytest.mark.parametrize(
    "sizes",
    [NAMED_SIZES, *np.array_split(np.array(drawn_sizes()), 7)],
    ids=lambda sizes: f"{sizes[0][0]}x{sizes[0][1]}",
)
def test_grid_tokens_and_pixels_equal_the_reference_processor(sizes) -> None:
    """L1, L2: 200 sizes in all, each exactly."""
    for height, width in np.asarray(sizes).tolist():
        pixels = noise(height, width)
        want = REFERENCE(Image.fromarray(pixels), return_tensors="np")
        picture = decode_image(encoded(Image.fromarray(pixels)), PIXELS, "part")
        size = fit(height, width, SIZES, "part")
        patches, grid = patchify([resize(picture, *size)], SIZES)
        assert list(grid) == want["image_grid_thw"][0].tolist(), (height, width)
        values = patches.astype(np.float32) / 127.5 - 1
        assert np.abs(values - want["pixel_values"]).max() < 1e-6, (height, width)
        assert patches.flags.writeable and patches.dtype == np.uint8


@pytest.mark.parametrize(
    ("height", "width", "resized", "tokens"),
    [
        (1, 1, (256, 256), 64),
        (64, 64, (256, 256), 64),
        (100, 200, (192, 384), 72),
        (480, 640, (480, 640), 300),
        (720, 1280, (704, 1280), 880),
        (768, 1024, (768, 1024), 768),
        (1080, 1920, (1088, 1920), 2040),
        (2160, 3840, (2176, 3840), 8160),
        (5000, 5000, (4096, 4096), 16_384),
        (1000, 5, (3648, 32), 114),
    ],
)
def test_published_sizes(height: int, width: int, resized: tuple[int, int], tokens: int) -> None:
    assert fit(height, width, SIZES, "part") == resized
    assert resized[0] * resized[1] // SIZES.cell**2 == tokens


@pytest.mark.parametrize("size", [(1, 2000), (2000, 1), (201, 1), (3, 601)])
def test_a_strip_longer_than_200_to_1_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(PromptError, match=f"part is {size[1]} x {size[0]} pixels"):
        fit(*size, SIZES, "part")


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_formats(form: str) -> None:
    data = encoded(Image.fromarray(noise(40, 60)), form)
    got = np.asarray(decode_image(data, PIXELS, "part"))
    assert np.array_equal(got, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_as_the_reference_loader(orientation: int, tmp_path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(noise(20, 50)), "PNG", exif=exif)
    (tmp_path / "image.png").write_bytes(data)
    got = decode_image(data, PIXELS, "part")
    assert got.size == ((50, 20) if orientation < 5 else (20, 50))
    assert np.array_equal(got, load_image(str(tmp_path / "image.png")))


def modes() -> dict[str, Image.Image]:
    colour = Image.fromarray(noise(30, 40))
    palette = colour.quantize(16)
    clear = colour.quantize(16)
    clear.info["transparency"] = bytes([0, 128] + [255] * 14)
    return {
        "transparent": Image.fromarray(noise(30, 40, 4)),
        "grey_alpha": Image.fromarray(noise(30, 40, 4)).convert("LA"),
        "grey": colour.convert("L"),
        "two_level": colour.convert("1"),
        "palette": palette,
        "palette_transparent": clear,
    }


@pytest.mark.parametrize("mode", modes())
def test_colour_modes_as_the_reference_loader(mode: str, tmp_path, recwarn) -> None:
    image = modes()[mode]
    data = encoded(image)
    got = decode_image(data, PIXELS, "part")
    assert got.mode == "RGB" and not recwarn.list
    assert np.array_equal(got, Image.open(io.BytesIO(data)).convert("RGBA").convert("RGB"))


def test_cmyk() -> None:
    data = encoded(Image.fromarray(noise(30, 40)).convert("CMYK"), "JPEG")
    want = Image.open(io.BytesIO(data)).convert("RGB")
    assert np.array_equal(decode_image(data, PIXELS, "part"), want)


def test_grey_of_16_bits_keeps_its_range() -> None:
    values = np.linspace(0, 65_535, 64, dtype=np.uint16)[None].repeat(4, 0)
    got = np.asarray(decode_image(encoded(Image.fromarray(values)), PIXELS, "part"))
    assert np.array_equal(got, np.repeat((values >> 8)[..., None], 3, -1))


def test_pixels_without_a_range_are_refused() -> None:
    data = encoded(Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF")
    with pytest.raises(PromptError, match="part has pixels of type F"):
        decode_image(data, PIXELS, "part")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'<?xml version="1.0"?>\n<svg xmlns="x"/>', "it is SVG"),
        (b"<!DOCTYPE html><p>404", "it is an HTML page"),
        (b"%PDF-1.7", "it is PDF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "it is a container of type 'heic'"),
        (b"hello", "it begins with b'hello'"),
        (b"", "it is empty"),
    ],
)
def test_other_files_are_named(data: bytes, what: str) -> None:
    """C8."""
    with pytest.raises(PromptError, match=r"part is not a PNG, .* image") as caught:
        decode_image(data, PIXELS, "part")
    assert what in str(caught.value) and "\n" not in str(caught.value)


def bomb(height: int, width: int) -> bytes:
    """A PNG file that announces a size and holds next to nothing."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 64)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


@pytest.mark.parametrize("size", [(8193, 8192), (10_000, 10_000), (60_000, 60_000)])
def test_decompression_bombs_are_refused_by_their_header(size: tuple[int, int]) -> None:
    with pytest.raises(PromptError, match="part"):
        decode_image(bomb(*size), PIXELS, "part")


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_damaged_files_raise_prompt_errors_only(form: str, recwarn) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    options = {"exif": exif} if form in ("PNG", "JPEG", "WEBP", "TIFF") else {}
    data = encoded(Image.fromarray(noise(24, 24)), form, **options)
    draw = np.random.default_rng(9)
    refused = 0
    for trial in range(150):
        bad = bytearray(data[: draw.integers(1, len(data))] if trial % 3 == 0 else data)
        for _ in range(int(draw.integers(1, 6))):
            bad[draw.integers(0, min(len(bad), 200))] = draw.integers(0, 256)
        try:
            assert decode_image(bytes(bad), PIXELS, "part").mode == "RGB"
        except PromptError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 10


def message(*sources: str) -> list[Message]:
    return [Message("user", tuple(ContentPart("image", source=source) for source in sources))]


def test_loading_gives_grid_digest_and_order(tmp_path) -> None:
    for name, seed in (("a", 1), ("b", 2), ("c", 1)):
        (tmp_path / name).write_bytes(png(300, 500, seed=seed))
    sources = [str(tmp_path / name) for name in "abc"]
    loader = MediaLoader(SIZES, VIDEO)
    first, second, third = loader.load(message(*sources), SourceRules(local_files=True))
    assert first.kind == "image" and first.grid == (1, 18, 32) and not first.timestamps
    # L5: the digest follows the pixels, not the name.
    assert first.digest == third.digest != second.digest
    assert first == third and first != second


@pytest.mark.parametrize(
    ("limits", "message_text"),
    [
        (MediaLimits(items=2), "3 images and videos; the limit is 2"),
        (MediaLimits(media_bytes=9_000), "more than the"),
        (MediaLimits(image_pixels=100), "64 x 64 pixels; at most 100"),
        (MediaLimits(tokens=191), "192 tokens of images and videos; the limit is 191"),
        (MediaLimits(attention_pairs=3 * 256**2 - 1), "pairs of patches"),
    ],
)
def test_limits_name_the_part(limits: MediaLimits, message_text: str, tmp_path) -> None:
    (tmp_path / "a").write_bytes(encoded(Image.fromarray(noise(64, 64)), "BMP")[:12342])
    loader, rules = MediaLoader(SIZES, VIDEO, limits), SourceRules(local_files=True)
    with pytest.raises(PromptError, match=message_text) as caught:
        loader.load(message(*[str(tmp_path / "a")] * 3), rules)
    assert str(caught.value).startswith("messages[0].content[")
