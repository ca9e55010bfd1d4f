"""Vision items of the suite: small files, no answer that stands out, pixels as in training."""

from collections import Counter

import numpy as np
import pytest

from ninfer.evals import load_suite
from ninfer.frontend import Frontend, parse_conversation
from recipes.tiny import build_suite
from recipes.tiny.encode import TOKENIZER_FOLDER, Encoder, read_resources
from recipes.tiny.heldout import is_held_out
from recipes.tiny.scenes import VISION_TASKS

MOST_BYTES = 5_000_000
# What a task may give to always answering the same.
MOST_OF_ONE = {"image_count": 0.25, "image_colour": 0.2, "image_position": 0.25, "two_images": 0.35}


@pytest.fixture(scope="module")
def suite():
    return load_suite("tiny")


def test_files_are_small():
    sizes = [(build_suite.SUITE_FOLDER / f"{name}.jsonl").stat().st_size for name in VISION_TASKS]
    assert sum(sizes) < MOST_BYTES


@pytest.mark.parametrize("task", VISION_TASKS)
def test_no_answer_stands_out(task, suite):
    items = suite.of_tasks([task]).items
    assert len(items) == 200
    answers = Counter(item.reference["content"] for item in items)
    assert answers.most_common(1)[0][1] <= MOST_OF_ONE.get(task, 0.1) * len(items)


@pytest.mark.parametrize("task", VISION_TASKS)
def test_the_suite_is_what_the_recipe_writes(task, suite):
    frontend = Frontend.from_resources(read_resources(TOKENIZER_FOLDER), vision=True)
    encoder = Encoder()
    found = build_suite.samples(task, 4)
    for sample, item in zip(found, suite.of_tasks([task]).items, strict=False):
        assert is_held_out(sample) and build_suite.has_small_media(sample)
        assert item.reference == sample.messages[-1]
        prompt = frontend.prepare(parse_conversation(list(item.messages)))
        for read, drawn in zip(prompt.media, encoder.media(sample), strict=True):
            # Neither resized nor changed by the encoding.
            assert read.grid == drawn.grid
            assert np.array_equal(read.patches, drawn.patches)
