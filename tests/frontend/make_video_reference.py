"""Write video_reference.npz: what the published video processor makes of small clips.

Run once, from the root of the repository, where transformers 5.17 and torchvision work:

    python tests/frontend/make_video_reference.py

The clips come from `video_clips.py`, so only the processor's answers are stored: grids, the seconds
written into the prompt, and pixels as 8-bit values. torchvision is not needed to run the tests.
"""

import re
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)
from transformers.video_utils import VideoMetadata
from video_clips import CLIPS

from ninfer.convert.byte_tokenizer import build_tokenizer

SIZE = {"shortest_edge": 4_096, "longest_edge": 25_165_824}
HALF = [0.5] * 3


def processor() -> Qwen3VLProcessor:
    """The published processor with the sizes of the Qwen3.6 checkpoints."""
    resources = build_tokenizer(800)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_buffer(resources["frontend/tokenizer.json"])
    )
    sizes = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessorPil(**sizes, image_mean=HALF, image_std=HALF),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**sizes, size=SIZE, image_mean=HALF, image_std=HALF),
    )


def main() -> None:
    """Ask the processor about every clip."""
    published = processor()
    stored: dict[str, np.ndarray] = {}
    for name, clip in CLIPS.items():
        frames = np.stack(clip.frames())
        metadata = VideoMetadata(total_num_frames=len(frames), fps=clip.fps, duration=None)
        answer = published(
            text=["<|vision_start|><|video_pad|><|vision_end|>"],
            videos=[torch.from_numpy(frames).permute(0, 3, 1, 2)],
            video_metadata=[metadata],
            do_sample_frames=True,
            return_tensors="pt",
        )
        text = published.tokenizer.decode(answer["input_ids"][0])
        levels = (answer["pixel_values_videos"] + 1) * 127.5
        assert (levels - levels.round()).abs().max() < 1e-3
        stored[f"{name}/grid"] = answer["video_grid_thw"][0].numpy()
        stored[f"{name}/seconds"] = np.array(
            [float(second) for second in re.findall(r"<(\d+\.\d) seconds>", text)]
        )
        stored[f"{name}/pixels"] = levels.round().to(torch.uint8).numpy()
    np.savez_compressed(Path(__file__).with_name("video_reference.npz"), **stored)


if __name__ == "__main__":
    main()
