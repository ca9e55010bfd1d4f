"""The synthetic tokenizer: sizes, determinism, and agreement with the libraries that read it."""

import json

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from ninfer.convert.byte_tokenizer import ADDED_TOKENS, MIN_VOCAB_SIZE, build_tokenizer
from ninfer.errors import ConfigError

TEXT = "The answer is not in the system, naïve 数据 🙂\n\tdef f(x1):\n    return x1 + 42\r\n"


@pytest.mark.parametrize("size", [MIN_VOCAB_SIZE, 300, 512, 1024, 4096, 20000])
def test_every_id_below_the_size_is_a_token(size):
    backend = tokenizers.Tokenizer.from_buffer(build_tokenizer(size)["frontend/tokenizer.json"])
    assert sorted(backend.get_vocab(with_added_tokens=True).values()) == list(range(size))
    assert backend.decode(backend.encode(TEXT).ids, skip_special_tokens=False) == TEXT


def test_added_tokens_close_the_vocabulary_with_the_published_flags():
    backend = tokenizers.Tokenizer.from_buffer(build_tokenizer(512)["frontend/tokenizer.json"])
    found = backend.get_added_tokens_decoder()
    expected = {512 - len(ADDED_TOKENS) + i: pair for i, pair in enumerate(ADDED_TOKENS)}
    assert {i: (token.content, token.special) for i, token in found.items()} == expected


def test_merges_shorten_english_text():
    def length(size: int) -> int:
        resources = build_tokenizer(size)
        return len(
            tokenizers.Tokenizer.from_buffer(resources["frontend/tokenizer.json"]).encode(TEXT)
        )

    assert length(512) < length(MIN_VOCAB_SIZE) == len(TEXT.encode())


def test_the_same_size_gives_the_same_bytes():
    assert build_tokenizer(700) == build_tokenizer(700)
    assert build_tokenizer(700) != build_tokenizer(701)


def test_extra_merges_come_first():
    resources = build_tokenizer(600, [("q", "z")])
    backend = tokenizers.Tokenizer.from_buffer(resources["frontend/tokenizer.json"])
    assert backend.token_to_id("qz") == 256
    assert backend.encode("qz").ids == [256]


def test_transformers_reads_the_files(tmp_path):
    resources = build_tokenizer(600)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes(resources[f"frontend/{name}"])
    fast = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    backend = tokenizers.Tokenizer.from_buffer(resources["frontend/tokenizer.json"])
    text = "<|im_start|>user\n" + TEXT + "<|im_end|>\n<think>"
    assert fast(text)["input_ids"] == backend.encode(text).ids
    assert len(fast) == 600


def test_stop_ids_are_in_the_generation_config():
    resources = build_tokenizer(600)
    backend = tokenizers.Tokenizer.from_buffer(resources["frontend/tokenizer.json"])
    ends = [backend.token_to_id(text) for text in ("<|im_end|>", "<|endoftext|>")]
    assert json.loads(resources["frontend/generation_config.json"])["eos_token_id"] == ends


@pytest.mark.parametrize(
    ("size", "merges", "message"),
    [
        (MIN_VOCAB_SIZE - 1, (), "too small"),
        (10**7, (), "tokens were made"),
        (600, [("ab", "c")], "no token"),
    ],
)
def test_sizes_and_merges_that_cannot_be_made_are_refused(size, merges, message):
    with pytest.raises(ConfigError, match=message):
        build_tokenizer(size, merges)
