"""Which samples are kept from training, for the held-out suite alone."""

import hashlib
import json
from typing import Final

from recipes.tiny.sample import Sample

# Of 256: one sample in sixteen.
HELD_OUT: Final = 16


def is_held_out(sample: Sample) -> bool:
    """Whether training must not see the sample: decided by a hash of what is asked."""
    return prompt_digest(sample)[0] < HELD_OUT


def prompt_digest(sample: Sample) -> bytes:
    """SHA-256 of the messages before the answer and of their pixels.

    Tools do not count: the same words are held out whatever is offered with them.
    """
    text = json.dumps(sample.messages[:-1], ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    for frames in sample.media:
        digest.update(str(frames.shape).encode())
        digest.update(frames.tobytes())
    return digest.digest()
