"""Samples to token ids, by the very template, tokenizer and media code that the engine serves with.

The tokens before the first generated one equal what `Frontend.prepare` makes of the messages before
the answer. All tokens equal the rendered conversation without the newline behind its last turn.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ninfer.frontend.chat_template import ChatTemplate
from ninfer.frontend.media.load import MediaLoader, media_of
from ninfer.frontend.media.patches import fit, resize
from ninfer.frontend.media.video import frame_size
from ninfer.frontend.normalize import parse_conversation
from ninfer.frontend.prompt import prepare_prompt
from ninfer.frontend.tokenizer import Tokenizer
from ninfer.models.positions import mrope_positions
from ninfer.request import Media, MediaKind, MediaRun, TemplateOptions
from recipes.tiny.sample import Sample

FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
TOKENIZER_FOLDER: Final = Path(__file__).parent / "tokenizer_files"

_MEDIA_KINDS: Final[Mapping[str, MediaKind]] = {
    "image": "image",
    "image_url": "image",
    "video": "video",
    "video_url": "video",
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sample as the trainer wants it.

    `ids` int32 [T]; `target` bool [T] is True where the model must produce the token;
    `positions` int32 [3, T] are those of multimodal RoPE, equal on all axes for text; `runs` say
    which tokens stand for which rows of `media`.
    """

    task: str
    ids: NDArray[np.int32]
    target: NDArray[np.bool_]
    positions: NDArray[np.int32]
    media: tuple[Media, ...] = ()
    runs: tuple[MediaRun, ...] = ()


class Encoder:
    """Encodes samples with the files of a checkpoint folder."""

    def __init__(self, folder: str | os.PathLike[str] = TOKENIZER_FOLDER) -> None:
        resources = read_resources(folder)
        self.tokenizer: Final = Tokenizer.from_bytes(
            resources["frontend/tokenizer.json"], resources["frontend/tokenizer_config.json"]
        )
        self.template: Final = ChatTemplate(resources["frontend/chat_template.jinja"].decode())
        self.loader: Final = MediaLoader.from_resources(resources)
        # How the turns begin in which the model writes, with thinking and without.
        opening = "<|im_start|>assistant\n<think>\n"
        self._openings: Final = {
            True: np.array(self.tokenizer.encode(opening)),
            False: np.array(self.tokenizer.encode(opening + "\n</think>\n\n")),
        }

    def encode(self, sample: Sample) -> Encoded:
        """Token ids, targets and positions of one sample."""
        options = TemplateOptions(enable_thinking=sample.thinking, add_generation_prompt=False)
        prompt = prepare_prompt(
            parse_conversation(_with_sources(sample), sample.tools, options),
            self.template,
            self.tokenizer,
            media=self.media(sample),
            merge=self.loader.image.merge,
        )
        # The newline behind the last turn is never generated.
        ids = np.array(prompt.token_ids[:-1], dtype=np.int32)
        return Encoded(
            sample.task,
            ids,
            self._target(ids, sample.thinking),
            _positions(len(ids), prompt.runs),
            prompt.media,
            prompt.runs,
        )

    def media(self, sample: Sample) -> tuple[Media, ...]:
        """The images and videos of a sample as the engine's vision tower reads them."""
        kinds = list(_media_kinds(sample.messages))
        assert len(kinds) == len(sample.media), sample
        times = sample.timestamps or ((),) * len(kinds)
        return tuple(map(self._medium, kinds, sample.media, times))

    def _medium(
        self, kind: MediaKind, frames: NDArray[np.uint8], times: tuple[float, ...]
    ) -> Media:
        count, height, width, _ = frames.shape
        if kind == "image":
            sizes = self.loader.image
            size = fit(height, width, sizes, "image")
        else:
            sizes = self.loader.video.pixels
            size = frame_size(height, width, count, sizes, "video")
            assert len(times) == -(-count // sizes.temporal), times
        return media_of(kind, [resize(Image.fromarray(f), *size) for f in frames], sizes, times)

    def _target(self, ids: NDArray[np.int32], thinking: bool) -> NDArray[np.bool_]:
        """True on what the model writes: all turns that begin with a thought, empty or not.

        The template gives the thought to the turns after the last user message only.
        """
        target = np.zeros(len(ids), dtype=np.bool_)
        opening = self._openings[thinking]
        ends = np.flatnonzero(ids == self.tokenizer.special["<|im_end|>"])
        for start in np.flatnonzero(ids == opening[0]):
            first = start + len(opening)
            if np.array_equal(ids[start:first], opening):
                target[first : 1 + ends[np.searchsorted(ends, first)]] = True
        assert target[-1], "the last turn is not the model's, or has no thought where it should"
        return target


def read_resources(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    """FILES of a checkpoint folder, by their names inside artifacts."""
    return {f"frontend/{name}": (Path(folder) / name).read_bytes() for name in FILES}


def _media_kinds(messages: Iterable[Mapping[str, Any]]) -> Iterator[MediaKind]:
    """Kind of each image and video part, in order."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else ():
            if part["type"] in _MEDIA_KINDS:
                yield _MEDIA_KINDS[part["type"]]


def _with_sources(sample: Sample) -> Sequence[Mapping[str, Any]]:
    """The messages, with a source in each media part: samples hold pixels instead."""
    if not sample.media:
        return sample.messages
    return [
        {**message, "content": [_with_source(part) for part in message["content"]]}
        if isinstance(message.get("content"), list | tuple)
        else message
        for message in sample.messages
    ]


def _with_source(part: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = _MEDIA_KINDS.get(part["type"])
    return part if kind is None else {"type": kind, kind: "pixels"}


def _positions(length: int, runs: tuple[MediaRun, ...]) -> NDArray[np.int32]:
    if not runs:
        return np.broadcast_to(np.arange(length, dtype=np.int32), (3, length))
    return mrope_positions(length, runs)[0].numpy().astype(np.int32)
