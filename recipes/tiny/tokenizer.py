"""The tokenizer of the demo checkpoints, trained on their own tasks.

Run as `python -m recipes.tiny.tokenizer OUT_DIR`. A byte-level BPE in the file format of the Qwen
tokenizers: their normaliser, their split pattern, their added tokens behind the merges.
"""

import argparse
import json
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from ninfer.convert.byte_tokenizer import ADDED_TOKENS, SPLIT_PATTERN, tokenizer_resources
from ninfer.convert.synth import PREPROCESSORS
from ninfer.frontend.chat_template import ChatTemplate
from ninfer.frontend.normalize import parse_conversation
from ninfer.frontend.prompt import template_variables
from ninfer.request import TemplateOptions
from recipes.tiny.scenes import CASES
from recipes.tiny.tasks import TEXT_TASKS

VOCAB_SIZE: Final = 2040  # addressable ids, ADDED_TOKENS included
SAMPLES_PER_TASK: Final = 400
SEED: Final = 6
# Answers have one right form, so the best token is the one to take.
SAMPLING: Final = {"do_sample": False}
# What training sees: images of 128 x 128 to 224 x 224 pixels, and four frames of 128 x 128 of a
# clip. A photo is scaled to 49 tokens at most, a video to two time steps of 16.
PREPROCESSING: Final[Mapping[str, Mapping[str, Any]]] = {
    "frontend/preprocessor_config.json": {
        "size": {"shortest_edge": 128 * 128, "longest_edge": 224 * 224}
    },
    "frontend/video_preprocessor_config.json": {
        "size": {"shortest_edge": 4 * 128 * 128, "longest_edge": 4 * 128 * 128},
        "min_frames": 4,
        "max_frames": 4,
    },
}


def build() -> dict[str, bytes]:
    """The files of a checkpoint folder by name; the same on every call."""
    template = tokenizer_resources({}, [])["frontend/chat_template.jinja"]
    vocab, merges = _train(_pieces(ChatTemplate(template.decode())))
    resources = tokenizer_resources(vocab, merges)
    files = {name.removeprefix("frontend/"): data for name, data in resources.items()}
    generation = json.loads(files["generation_config.json"]) | SAMPLING
    files["generation_config.json"] = _json(generation)
    for name, content in PREPROCESSORS.items():
        files[name.removeprefix("frontend/")] = _json({**content, **PREPROCESSING[name]})
    return files


def _pieces(template: ChatTemplate) -> Iterator[str]:
    """Rendered samples of all tasks, cut at the added tokens; of vision tasks the words alone."""
    added = re.compile("|".join(re.escape(text) for text, _ in ADDED_TOKENS))
    rng = random.Random(SEED)
    for task in TEXT_TASKS.values():
        for _ in range(SAMPLES_PER_TASK):
            sample = task(rng)
            options = TemplateOptions(add_generation_prompt=False)
            conversation = parse_conversation(sample.messages, sample.tools, options)
            rendered = template.render(template_variables(conversation))
            yield from filter(None, added.split(rendered))
    for make_case in CASES.values():
        for _ in range(SAMPLES_PER_TASK // 3):
            case = make_case(rng)
            yield from (case.question, case.answer, f"<{rng.randint(0, 8) / 4:.1f} seconds>")


def _train(pieces: Iterator[str]) -> tuple[dict[str, int], list[list[str]]]:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(ADDED_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(pieces, trainer)
    model = json.loads(backend.to_str())["model"]
    assert len(model["vocab"]) == VOCAB_SIZE - len(ADDED_TOKENS), len(model["vocab"])
    return model["vocab"], model["merges"]


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the files; made if missing")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in build().items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
