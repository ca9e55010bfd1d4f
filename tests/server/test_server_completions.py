"""Completions with the real client: texts, ids, echo, log-probabilities, several prompts."""

from typing import Any

import openai
import pytest
from serving import END, Server

EOS = {"ignore_eos": True}


def test_whole_and_streamed_give_the_same(server: Server) -> None:
    options: dict[str, Any] = {"max_tokens": 9, "temperature": 1, "seed": 3, "extra_body": EOS}
    with server.client() as client:
        whole = client.completions.create(model="tiny", prompt="Once", **options)
        text = ""
        for chunk in client.completions.create(
            model="tiny",
            prompt="Once",
            stream=True,
            stream_options={"include_usage": True},
            **options,
        ):
            text += chunk.choices[0].text if chunk.choices else ""
    assert text == whole.choices[0].text
    assert chunk.usage == whole.usage and chunk.choices == []
    assert whole.usage is not None and whole.usage.completion_tokens == 9
    assert whole.choices[0].finish_reason == "length"


def test_the_default_is_16_tokens_and_an_empty_prompt_works(server: Server) -> None:
    with server.client() as client:
        reply = client.completions.create(model="tiny", prompt="", extra_body=EOS)
    assert reply.usage is not None and reply.usage.completion_tokens == 16


def test_texts_and_ids_say_the_same(server: Server) -> None:
    ids = server.engine.text.encode("Once upon")
    options: dict[str, Any] = {"max_tokens": 6, "temperature": 0, "extra_body": EOS}
    with server.client() as client:
        one = client.completions.create(model="tiny", prompt="Once upon", **options)
        for prompt in (ids, [ids], ["Once upon"]):
            other = client.completions.create(model="tiny", prompt=prompt, **options)
            assert other.choices[0].text == one.choices[0].text


def test_several_prompts_with_several_answers(server: Server) -> None:
    options: dict[str, Any] = {"max_tokens": 5, "temperature": 1, "seed": 1, "extra_body": EOS}
    with server.client() as client:
        reply = client.completions.create(model="tiny", prompt=["abc", "xyz"], n=2, **options)
        assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
        for place, text in enumerate(("abc", "xyz")):
            alone = client.completions.create(model="tiny", prompt=text, n=2, **options)
            pair = reply.choices[2 * place : 2 * place + 2]
            assert [c.text for c in alone.choices] == [c.text for c in pair]
        streamed = [""] * 4
        for chunk in client.completions.create(
            model="tiny", prompt=["abc", "xyz"], n=2, stream=True, **options
        ):
            streamed[chunk.choices[0].index] += chunk.choices[0].text
        assert streamed == [choice.text for choice in reply.choices]
        prompt_tokens = sum(len(server.engine.text.encode(text)) for text in ("abc", "xyz"))
        assert reply.usage is not None and reply.usage.prompt_tokens == prompt_tokens


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_echo_scores_the_prompt(server: Server, stream: bool) -> None:
    """What evaluation harnesses ask: max_tokens 0, echo, log-probabilities."""
    body: dict[str, Any] = {"prompt": "Once upon a", "max_tokens": 0, "echo": True, "logprobs": 2}
    if stream:
        chunks = server.events("/v1/completions", body)[:-1]
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        choice = chunks[-1]["choices"][0]
    else:
        choice = server.post("/v1/completions", body).json()["choices"][0]
        text = choice["text"]
    assert text == "Once upon a" and choice["finish_reason"] == "length"
    found = choice["logprobs"]
    assert "".join(found["tokens"]) == "Once upon a"
    assert found["token_logprobs"][0] is None
    assert all(value < 0 for value in found["token_logprobs"][1:])
    assert all(len(best) == 2 for best in found["top_logprobs"][1:])
    for offset, token in zip(found["text_offset"], found["tokens"], strict=True):
        assert "Once upon a"[offset:].startswith(token)


def test_tags_and_stops_are_plain_text(server: Server) -> None:
    server.scripts.texts["plainly"] = f"<think>a</think>b, then{END}"
    with server.client() as client:
        reply = client.completions.create(
            model="tiny", prompt="plainly", stop=[", t"], max_tokens=50, logprobs=0
        )
        assert reply.choices[0].text == "<think>a</think>b"
        assert reply.choices[0].finish_reason == "stop"
        logprobs = reply.choices[0].logprobs
        assert logprobs is not None and logprobs.tokens is not None
        assert reply.usage is not None
        assert len(logprobs.tokens) == reply.usage.completion_tokens


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]], "suffix": "b"}, "suffix"),
        ({"prompt": [10**7]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": ["a"] * 99}, "n"),
    ],
    ids=str,
)
def test_what_is_refused(server: Server, body: dict[str, Any], param: str) -> None:
    with server.client() as client, pytest.raises(openai.BadRequestError) as found:
        client.post("/completions", body=body, cast_to=object)
    assert str(found.value.param).startswith(param), found.value
