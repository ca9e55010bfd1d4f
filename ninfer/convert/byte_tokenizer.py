"""A byte-level BPE tokenizer of any size in the Qwen file format, for synthetic artifacts.

The file format is that of the `tokenizers` library (`tokenizer.json`) with the settings of the
published Qwen3.5 tokenizers: NFC, their split pattern, byte-level alphabet, nothing put in front.
The merges are not trained: they spell common English words and, when more are wanted, all short
runs of lower-case letters. The same size always gives the same bytes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import product
from string import ascii_lowercase
from typing import Any, Final

from ninfer.errors import ConfigError

# Text and "special" flag, in the order of their ids. Tags of thoughts and tools are not special.
ADDED_TOKENS: Final = (
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|vision_start|>", True),
    ("<|vision_end|>", True),
    ("<|image_pad|>", True),
    ("<|video_pad|>", True),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<tool_response>", False),
    ("</tool_response>", False),
    ("<think>", False),
    ("</think>", False),
)
MIN_VOCAB_SIZE: Final = 256 + len(ADDED_TOKENS)

SPLIT_PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_WORDS: Final = (
    " the of and to in is that it for as with was on be are this by at from or an have not which"
    " you but can all one their there has were will would what if when who more other into some"
    " them then than its only time about these two may first how our out up do any my now such like"
    " over also after most where so much before many must because between each here number system"
    " user assistant answer question think step value result function call name type list text word"
    " line file data true false null return class import print error message content token model"
)


def build_tokenizer(
    vocab_size: int, extra_merges: Iterable[tuple[str, str]] = ()
) -> dict[str, bytes]:
    """Text resources of a synthetic artifact, keyed by their names inside artifacts.

    `vocab_size` counts every id: 256 bytes, merges, then ADDED_TOKENS at the end, so the largest
    id is `vocab_size - 1`. `extra_merges` are pairs of plain text pieces that get the first ranks;
    each piece must be one byte long or made by an earlier merge. Raises ConfigError for a size
    outside what can be filled or for a pair that cannot be merged.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise ConfigError(f"vocab_size {vocab_size} is too small; use {MIN_VOCAB_SIZE} or more")
    return tokenizer_resources(*_fill(vocab_size - len(ADDED_TOKENS), extra_merges))


def tokenizer_resources(
    vocab: Mapping[str, int],
    merges: Sequence[Sequence[str]],
    added_tokens: Sequence[tuple[str, bool]] = ADDED_TOKENS,
) -> dict[str, bytes]:
    """Text resources of a byte-level BPE, keyed by their names inside artifacts.

    `vocab` gives the ids 0 to its size; `added_tokens` follow. Tokens are written in GPT-2's
    printable stand-ins of bytes.
    """
    added = [
        {"id": len(vocab) + index, "content": content, "special": special, **_PLAIN_MATCH}
        for index, (content, special) in enumerate(added_tokens)
    ]
    ids = {str(token["content"]): int(str(token["id"])) for token in added}
    generation = {"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]]}
    template = files("ninfer").joinpath("assets", "chat_template.jinja").read_bytes()
    return {
        "frontend/tokenizer.json": _json(_tokenizer(vocab, merges, added)),
        "frontend/tokenizer_config.json": _json(_tokenizer_config(added)),
        "frontend/generation_config.json": _json(generation),
        "frontend/chat_template.jinja": template,
    }


_SPLIT: Final = {
    "type": "Split",
    "pattern": {"Regex": SPLIT_PATTERN},
    "behavior": "Isolated",
    "invert": False,
}
_BYTE_LEVEL: Final = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": False,
}
_PLAIN_MATCH: Final = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def _alphabet() -> list[str]:
    """The printable stand-in of each byte value, as GPT-2 defined it."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def _fill(
    size: int, extra_merges: Iterable[tuple[str, str]]
) -> tuple[dict[str, int], list[list[str]]]:
    letters = _alphabet()
    vocab = {token: index for index, token in enumerate(sorted(letters))}
    merges: list[list[str]] = []
    for left, right in extra_merges:
        pair = ["".join(letters[b] for b in piece.encode()) for piece in (left, right)]
        if any(piece not in vocab for piece in pair):
            raise ConfigError(f"merge of {left!r} and {right!r} has a piece that is no token")
        _add(vocab, merges, pair)
    for left, right in _spelled_merges(letters[ord(" ")]):
        if len(vocab) >= size:
            break
        _add(vocab, merges, [left, right])
    if len(vocab) != size:
        raise ConfigError(
            f"{len(vocab)} tokens were made where {size} are wanted; change vocab_size"
        )
    return vocab, merges


def _add(vocab: dict[str, int], merges: list[list[str]], pair: list[str]) -> None:
    if pair[0] + pair[1] not in vocab:
        vocab[pair[0] + pair[1]] = len(vocab)
        merges.append(pair)


def _spelled_merges(space: str) -> Iterator[tuple[str, str]]:
    for word in _WORDS.split():
        for start in (space, word[0]):
            rest = word if start == space else word[1:]
            for end in range(len(rest)):
                yield start + rest[:end], rest[end]
    for length in (2, 3, 4):
        for run in product(ascii_lowercase, repeat=length):
            yield "".join(run[:-1]), run[-1]


def _tokenizer(
    vocab: Mapping[str, int], merges: Sequence[Sequence[str]], added: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [_SPLIT, _BYTE_LEVEL]},
        "post_processor": _BYTE_LEVEL,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def _tokenizer_config(added: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in added
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 262144,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
