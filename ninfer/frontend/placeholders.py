"""Placeholders of media in a rendered prompt: one pad each becomes as many as there are rows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ninfer.errors import PromptError
from ninfer.request import Media, MediaKind, MediaRun

PADS: Final[Mapping[MediaKind, str]] = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
START: Final = "<|vision_start|>"
END: Final = "<|vision_end|>"

# A video's time steps bring start and end marks of their own, so its outer ones go.
_PLACEHOLDER: Final = re.compile(
    "|".join(map(re.escape, (START + PADS["video"] + END, PADS["image"], PADS["video"])))
)


def expand_placeholders(rendered: str, media: Sequence[Media], merge: int) -> str:
    """The rendered prompt with the pads of each image and video written out, in order.

    An image's pad is repeated. A video becomes, per time step, `<1.5 seconds>` (its time to one
    decimal), a start mark, the pads and an end mark, as the published Qwen3-VL processors write it.
    Raises PromptError when the placeholders are not those of `media`.
    """
    found = [_kind(match.group()) for match in _PLACEHOLDER.finditer(rendered)]
    given = [item.kind for item in media]
    if found != given:
        raise PromptError(
            f"the prompt has placeholders for {_counted(found)} where the messages hold"
            f" {_counted(given)}; the chat template must write one for each, in order, and no text"
            " may spell one"
        )
    waiting = iter(media)
    return _PLACEHOLDER.sub(lambda _: _pads(next(waiting), merge), rendered)


def find_runs(
    ids: Sequence[int], pad_ids: Mapping[MediaKind, int], media: Sequence[Media], merge: int
) -> tuple[MediaRun, ...]:
    """Where the pads of an expanded prompt are, in order."""
    runs: list[MediaRun] = []
    at = 0
    for index, item in enumerate(media):
        pad = pad_ids[item.kind]
        for grid, first_row in _steps(item, merge):
            run = MediaRun(ids.index(pad, at), grid, index, first_row)
            at = run.start + run.length
            assert all(token == pad for token in ids[run.start : at]), run
            runs.append(run)
    return tuple(runs)


def _steps(item: Media, merge: int) -> Iterator[tuple[tuple[int, int, int], int]]:
    """Merged grid and first row of each run of pads: one for an image, one per step of a video."""
    time, height, width = item.grid
    rows, columns = height // merge, width // merge
    if item.kind == "image":
        yield (time, rows, columns), 0
    else:
        yield from (((1, rows, columns), step * rows * columns) for step in range(time))


def _pads(item: Media, merge: int) -> str:
    time, height, width = item.grid
    pads = PADS[item.kind] * ((height // merge) * (width // merge))
    if item.kind == "image":
        return pads * time
    return "".join(f"<{second:.1f} seconds>{START}{pads}{END}" for second in item.timestamps)


def _kind(placeholder: str) -> MediaKind:
    return "image" if PADS["image"] in placeholder else "video"


def _counted(kinds: Sequence[MediaKind]) -> str:
    return f"{kinds.count('image')} images and {kinds.count('video')} videos"
