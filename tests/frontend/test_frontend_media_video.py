"""Videos against stored answers of the published processor, frame choice, and bad files."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from media_files import clip, data_uri, noise, png
from video_clips import CLIPS

from ninfer.errors import PromptError
from ninfer.frontend.media import MediaLimits, MediaLoader, SourceRules
from ninfer.frontend.media.sizes import PixelSizes, VideoSizes
from ninfer.frontend.media.video import (
    SourceFacts,
    frame_indices,
    frame_size,
    load_frames,
    step_times,
)
from ninfer.request import ContentPart, Message

IMAGE = PixelSizes(16, 2, 2, 65_536, 16_777_216)
SIZES = VideoSizes(PixelSizes(16, 2, 2, 4_096, 25_165_824), 2.0, 4, 768)
REFERENCE = np.load(Path(__file__).with_name("video_reference.npz"))
LIMITS = MediaLimits()


def media_of(data: bytes, limits: MediaLimits = LIMITS):
    part = ContentPart("video", source=data_uri(data, "video/x-matroska"))
    (media,) = MediaLoader(IMAGE, SIZES, limits).load([Message("user", (part,))], SourceRules())
    return media


def test_the_reference_has_every_clip() -> None:
    assert {name.partition("/")[0] for name in REFERENCE} == set(CLIPS)


@pytest.mark.parametrize("name", CLIPS)
def test_grids_times_and_pixels_equal_the_reference_processor(name: str) -> None:
    source = CLIPS[name]
    media = media_of(clip(source.frames(), source.rate))
    assert media.kind == "video"
    assert list(media.grid) == REFERENCE[f"{name}/grid"].tolist()
    seconds = [float(f"{second:.1f}") for second in media.timestamps]
    assert seconds == REFERENCE[f"{name}/seconds"].tolist()
    difference = np.abs(media.patches.astype(int) - REFERENCE[f"{name}/pixels"])
    # The reference resizes with another library, whose weights are coarser: it is one level off
    # for a few values in a thousand, two levels for a few of those.
    assert (difference > 0).mean() < 0.01
    assert (difference > 1).mean() < 3e-4 and difference.max() <= 2


@pytest.mark.parametrize(
    ("frames", "fps", "count"),
    [
        (1, 24.0, 1),
        (2, 30.0, 2),
        (3, 1.0, 3),
        (10, 25.0, 4),
        (60, 30.0, 4),
        (100, 10.0, 20),
        (4000, 24.0, 333),
        (12_000, 24.0, 768),
        (7, 1.0, 7),
    ],
)
def test_frames_are_evenly_spaced(frames: int, fps: float, count: int) -> None:
    indices = frame_indices(frames, fps, SIZES)
    assert len(indices) == count and indices[0] == 0 and indices[-1] == frames - 1
    for place, index in enumerate(indices):
        exact = Fraction(place * (frames - 1), max(count - 1, 1))
        assert abs(index - exact) <= Fraction(1, 2) + Fraction(1, 10**9)
    assert indices == sorted(set(indices))


def test_step_times_are_means_of_pairs() -> None:
    assert step_times([0, 3, 6, 9], 25.0, 2) == pytest.approx((0.06, 0.3))
    assert step_times([0, 1, 2], 1.0, 2) == pytest.approx((0.5, 2.0))
    assert step_times([0], 24.0, 2) == (0.0,)


@pytest.mark.parametrize(
    ("height", "width", "frames", "cells"),
    # Grids in patches that the reference processor gave for these sizes.
    [
        (10, 10, 2, (4, 4)),
        (1, 1, 2, (4, 4)),
        (16, 3000, 4, (2, 376)),
        (700, 4000, 3, (44, 250)),
        (8000, 2000, 2, (442, 110)),
        (1500, 1900, 7, (94, 118)),
        (200, 100, 768, (12, 6)),
        (2900, 2900, 3, (180, 180)),
        (5, 1000, 2, (2, 400)),
        (853, 225, 7, (54, 14)),
        (18, 675, 3, (2, 76)),
        (36, 646, 4, (2, 40)),
    ],
)
def test_frame_sizes(height: int, width: int, frames: int, cells: tuple[int, int]) -> None:
    size = frame_size(height, width, frames, SIZES.pixels, "part")
    assert size == (cells[0] * 16, cells[1] * 16)


def test_a_long_strip_is_refused() -> None:
    with pytest.raises(PromptError, match="part is 7200 x 32 pixels"):
        frame_size(4, 900, 2, SIZES.pixels, "part")


def test_one_frame_is_shown_twice() -> None:
    media = media_of(clip([noise(64, 64)]))
    assert media.grid == (1, 4, 4) and media.timestamps == (0.0,)
    halves = media.patches.reshape(-1, 3, 2, 256)
    assert np.array_equal(halves[:, :, 0], halves[:, :, 1])


@pytest.mark.parametrize(
    ("codec", "form"), [("mpeg4", "mp4"), ("libvpx", "webm"), ("mpeg2video", "mpegts")]
)
def test_usual_containers(codec: str, form: str) -> None:
    media = media_of(clip([noise(64, 96, seed=i) for i in range(30)], 10, codec, form))
    assert media.grid == (3, 4, 6)
    assert len(media.timestamps) == 3


def test_a_cut_off_file_gives_what_it_has() -> None:
    data = clip([noise(64, 64, seed=i) for i in range(12)], 2)
    whole, cut = media_of(data), media_of(data[: len(data) * 2 // 3])
    assert 1 <= cut.grid[0] < whole.grid[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"not a video", "cannot be read as a video"),
        (b"", "cannot be read as a video"),
        (clip([noise(64, 64)])[:300], "cannot be read|without"),
    ],
)
def test_bad_files_are_named(data: bytes, message: str) -> None:
    with pytest.raises(PromptError, match=message) as caught:
        load_frames(data, SIZES, LIMITS, "messages[3].content[1]")
    assert str(caught.value).startswith("messages[3].content[1]")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (MediaLimits(source_frames=9), "more than 9 frames"),
        (MediaLimits(video_seconds=0.9), "lasts 1 s; at most 1 s"),
        (MediaLimits(image_pixels=64 * 64 - 1), "64 x 64 pixels; at most 4,095"),
        (MediaLimits(video_pixels=4 * 64 * 64 - 1), "4 frames of 64 x 64 pixels"),
        (MediaLimits(tokens=7), "8 tokens of images and videos"),
    ],
)
def test_limits(limits: MediaLimits, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        media_of(clip([noise(64, 64, seed=i) for i in range(10)], 10), limits)


def test_damaged_files_raise_prompt_errors_only() -> None:
    data = clip([noise(48, 48, seed=i) for i in range(6)], 6, "mpeg4", "mp4")
    draw = np.random.default_rng(3)
    for _ in range(40):
        bad = bytearray(data)
        for _ in range(int(draw.integers(1, 20))):
            bad[draw.integers(0, len(bad))] = draw.integers(0, 256)
        try:
            frames, times = load_frames(bytes(bad), SIZES, LIMITS, "part")
        except PromptError as error:
            assert "\n" not in str(error)
        else:
            assert len(times) == -(-len(frames) // 2)


@pytest.mark.parametrize(
    "listing",
    [
        "ffconcat version 1.0\nfile clip.mkv\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nclip.mkv\n#EXT-X-ENDLIST\n",
    ],
)
def test_a_list_of_files_opens_none_of_them(
    listing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clip.mkv").write_bytes(clip([noise(64, 64)] * 3))
    with pytest.raises(PromptError, match="part cannot be read as a video"):
        load_frames(listing.encode(), SIZES, LIMITS, "part")


def test_a_stream_larger_than_its_header_says_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = clip([noise(160, 160)] * 3)
    survey = SourceFacts(3, 24.0, 16, 16)
    monkeypatch.setattr("ninfer.frontend.media.video._survey", lambda *_: survey)
    for pixels, message in ((160 * 159, "frame 0 has 160 x 160"), (64 * 64, "cannot be read")):
        with pytest.raises(PromptError, match=message):
            load_frames(data, SIZES, MediaLimits(image_pixels=pixels), "part")


def test_a_picture_is_no_video() -> None:
    with pytest.raises(PromptError, match="cannot be read as a video"):
        media_of(png(64, 64))
