"""Ids, bytes, added tokens, control text that clients spell, and incremental decoding."""

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from ninfer.convert.byte_tokenizer import ADDED_TOKENS, build_tokenizer, tokenizer_resources
from ninfer.errors import ArtifactError, GenerationError, PromptError
from ninfer.frontend import Frontend, Tokenizer, parse_conversation
from ninfer.frontend.detokenizer import Detokenizer

RESOURCES = build_tokenizer(800)
FRONTEND = Frontend.from_resources(RESOURCES)
TOKENIZER = FRONTEND.tokenizer
PLAIN = tokenizers.Tokenizer.from_buffer(RESOURCES["frontend/tokenizer.json"])
CONTROL = [*TOKENIZER.added, "<|", "|>", "<", "|im_end|>", "<|im_", "é", "e\u0301", "\U000f0000"]
PIECES = st.lists(st.one_of(st.sampled_from(CONTROL), st.text(max_size=4)), max_size=8)
TEXTS = PIECES.map("".join)


@given(TEXTS)
def test_encoding_equals_the_library(text):
    assert TOKENIZER.encode(text) == PLAIN.encode(text, add_special_tokens=False).ids


@given(st.lists(st.integers(0, TOKENIZER.addressable - 1), max_size=40))
def test_incremental_text_equals_decoding_at_once(ids):
    detokenizer = Detokenizer()
    pieces = [detokenizer.feed(TOKENIZER.token_bytes(i)) for i in ids]
    text = "".join(pieces) + detokenizer.flush()
    assert text == b"".join(map(TOKENIZER.token_bytes, ids)).decode("utf-8", "replace")


@given(st.lists(st.binary(max_size=3), max_size=20))
def test_invalid_bytes_never_eat_what_follows(pieces):
    detokenizer = Detokenizer()
    text = "".join(map(detokenizer.feed, pieces)) + detokenizer.flush()
    assert text == b"".join(pieces).decode("utf-8", "replace")


@given(TEXTS)
def test_bytes_of_ids_join_to_the_normal_form(text):
    joined = b"".join(map(TOKENIZER.token_bytes, TOKENIZER.encode(text))).decode()
    assert joined == PLAIN.decode(PLAIN.encode(text).ids, skip_special_tokens=False)


def test_vocabulary_bounds():
    assert TOKENIZER.addressable == 800
    assert TOKENIZER.token_bytes(TOKENIZER.added["</think>"]) == b"</think>"
    for token_id in (-1, 800):
        with pytest.raises(GenerationError, match=r"outside the vocabulary 0\.\.799"):
            TOKENIZER.token_bytes(token_id)


def test_flags_of_added_tokens():
    assert "<|image_pad|>" in TOKENIZER.special
    assert "<think>" in TOKENIZER.added
    assert "<think>" not in TOKENIZER.special


def test_stop_ids_come_from_the_file_and_the_turn_ends():
    ends = {TOKENIZER.added["<|im_end|>"], TOKENIZER.added["<|endoftext|>"]}
    for eos, extra in (([3, 5], {3, 5}), (4, {4}), (None, set())):
        config = json.dumps({"eos_token_id": eos}).encode()
        frontend = Frontend.from_resources({**RESOURCES, "frontend/generation_config.json": config})
        assert set(frontend.stop_ids) == ends | extra
        assert list(frontend.stop_ids) == sorted(frontend.stop_ids)


def test_tokens_that_only_the_config_lists_are_known():
    config = json.loads(RESOURCES["frontend/tokenizer_config.json"])
    config["added_tokens_decoder"]["800"] = {"content": "<|late|>", "special": True}
    config["added_tokens_decoder"]["801"] = {"content": "<later>", "special": False}
    tokenizer = Tokenizer.from_bytes(
        RESOURCES["frontend/tokenizer.json"], json.dumps(config).encode()
    )
    assert tokenizer.addressable == 802
    assert tokenizer.encode("<|late|><later>") == [800, 801]
    assert tokenizer.token_bytes(801) == b"<later>"
    assert set(tokenizer.special) - set(TOKENIZER.special) == {"<|late|>"}


def test_ids_without_a_token_have_no_bytes():
    spec = json.loads(RESOURCES["frontend/tokenizer.json"])
    del spec["model"]["vocab"]["!"]
    tokenizer = Tokenizer.from_bytes(json.dumps(spec).encode())
    assert tokenizer.token_bytes(0) == b""


def test_training_switches_of_the_file_do_not_change_prompts():
    spec = json.loads(RESOURCES["frontend/tokenizer.json"])
    text = "hello the world and the rest of it" * 3
    expected = TOKENIZER.encode(text)
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 999}, "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "!"}
    for change in (
        {"truncation": cut},
        {"padding": pad},
        {"model": spec["model"] | {"dropout": 1}},
    ):
        tokenizer = Tokenizer.from_bytes(json.dumps(spec | change).encode())
        assert tokenizer.encode(text) == expected


def changed_config(**entries):
    return json.dumps({"added_tokens_decoder": entries}).encode()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b"{", "tokenizer_config.json: not JSON"),
        (b"[]", "cannot be read"),
        (b"\xff", "tokenizer_config.json: not UTF-8"),
        (b"[" * 100000, "tokenizer_config.json: nested too deeply"),
        (changed_config(x={"content": "a"}), "'x' is not a token id"),
        (changed_config(**{"-5": {"content": "a"}}), "'-5' is not a token id"),
        (changed_config(**{str(10**22): {"content": "a"}}), f"'{10**22}' is not a token id"),
        (changed_config(**{"9" * 9999: {"content": "a"}}), "'9{37}...' is not a token id"),
        (changed_config(**{"4_2": {"content": "a"}}), "'4_2' is not a token id"),
        (changed_config(**{"05": {"content": "a"}}), "'05' is not a token id"),
        (changed_config(**{"800": {}}), "cannot be read"),
        (changed_config(**{"900": {"content": "<gap>"}}), "gives id 900 to '<gap>'"),
        (changed_config(**{"799": {"content": "<other>"}}), "does not fit"),
        (
            changed_config(**{"800": {"content": "<|s|>", "special": True, "lstrip": True}}),
            "lstrip",
        ),
    ],
)
def test_broken_config_is_refused(config, message):
    with pytest.raises(ArtifactError, match=message):
        Tokenizer.from_bytes(RESOURCES["frontend/tokenizer.json"], config)


def test_broken_resources_are_refused():
    other = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a")).to_str().encode()
    for name, data, message in (
        ("frontend/tokenizer.json", b"junk", "tokenizer.json cannot be read"),
        ("frontend/tokenizer.json", other, "not a byte-level"),
        ("frontend/chat_template.jinja", b"\xff", "not UTF-8 at byte 0"),
        ("frontend/generation_config.json", b"", "not JSON"),
        ("frontend/generation_config.json", b"[" * 100000, "nested too deeply"),
        ("frontend/generation_config.json", b'{"eos_token_id": [800]}', "eos_token_id 800"),
        ("frontend/generation_config.json", b'{"eos_token_id": true}', "eos_token_id True"),
    ):
        with pytest.raises(ArtifactError, match=message):
            Frontend.from_resources({**RESOURCES, name: data})
    for name in RESOURCES:
        rest = {key: value for key, value in RESOURCES.items() if key != name}
        with pytest.raises(ArtifactError, match=f"{name} is missing"):
            Frontend.from_resources(rest)


def conversation(*parts, name="f", key="k", tool="t", reasoning="r"):
    return parse_conversation(
        [
            {"role": "system", "content": parts[0]},
            # Templates refuse a lone user message that is all tool response, so it starts with a q.
            {"role": "user", "content": [{"type": "text", "text": p} for p in ("q", *parts)]},
            {
                "role": "assistant",
                "content": parts[-1],
                "reasoning_content": reasoning,
                "tool_calls": [{"function": {"name": name, "arguments": {key: list(parts)}}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": parts[0]},
        ],
        [{"type": "function", "function": {"name": tool, "parameters": {key: name}}}],
    )


CLEAN = FRONTEND.prepare(conversation("a", "b"))


@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS, TEXTS, TEXTS, TEXTS)
def test_clients_cannot_spell_control_tokens(parts, name, key, tool, reasoning):
    spelled = conversation(*parts, name=name, key=key, tool=tool, reasoning=reasoning)
    prompt = FRONTEND.prepare(spelled)
    control = set(TOKENIZER.special.values())
    assert [i for i in prompt.token_ids if i in control] == [
        i for i in CLEAN.token_ids if i in control
    ]
    literal = FRONTEND.prepare(spelled, literal_control_text="control")
    assert literal.text == prompt.text
    assert list(literal.token_ids) == TOKENIZER.encode(literal.text)
    if "<|" not in "".join([*parts, name, key, tool, reasoning]):
        assert literal == prompt


def test_control_text_keeps_its_characters():
    prompt = FRONTEND.prepare_text("log: <|im_end|>\n<|image_pad|> <think>")
    shown = b"".join(map(TOKENIZER.token_bytes, prompt.token_ids)).decode()
    assert shown == prompt.text
    assert "log: <|im_end|>\n<|image_pad|> <think><|im_end|>" in prompt.text
    assert TOKENIZER.added["<|image_pad|>"] not in prompt.token_ids
    # Tags of thoughts are not special: templates read them in text.
    assert prompt.token_ids.count(TOKENIZER.added["<think>"]) == 2


def test_control_text_that_begins_as_a_tag_leaves_the_tag_to_templates():
    model = json.loads(RESOURCES["frontend/tokenizer.json"])["model"]
    added = [*ADDED_TOKENS, ("<tts_pad>", True)]
    files = tokenizer_resources(model["vocab"], model["merges"], added)
    tokenizer = Tokenizer.from_bytes(files["frontend/tokenizer.json"])
    text = "a <think>b</think> <tool_call> <tts_pad>"
    assert tokenizer.breaks(text, "#") == "a <think>b</think> <tool_call> <t#ts_pad>"
    assert tokenizer.special["<tts_pad>"] not in tokenizer.encode("<t#ts_pad>", mark="#")
    # What follows in the prompt may not end a token that a text begins.
    assert [tokenizer.breaks(text, "#") for text in ("<", "x<t", "<tt", "<think>")] == [
        *("<#", "x<t#", "<t#t", "<think>")
    ]


def test_control_text_in_two_parts_is_text_too():
    parts = [{"type": "text", "text": piece} for piece in ("a<", "|im_end|>b")]
    prompt = FRONTEND.prepare(parse_conversation([{"role": "user", "content": parts}]))
    assert prompt == FRONTEND.prepare_text("a<|im_end|>b")
    assert prompt.token_ids.count(TOKENIZER.added["<|im_end|>"]) == 1


def test_unpaired_surrogates_are_refused():
    with pytest.raises(PromptError, match=r"U\+D83D"):
        FRONTEND.prepare_text("cut \ud83d")


def test_deep_tools_are_refused():
    deep: dict = {"name": "f"}
    for _ in range(5000):
        deep = {"name": "f", "a": deep}
    conversation = parse_conversation([{"role": "user", "content": "q"}], [{"function": deep}])
    with pytest.raises(PromptError, match="nested too deeply"):
        FRONTEND.prepare(conversation)
