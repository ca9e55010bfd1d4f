"""Pictures over HTTP: data URLs and downloads, in messages and tool results, within limits."""

import base64
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from PIL import Image
from serving import Server, serving

OPTIONS: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 8,
    "temperature": 0,
    "extra_body": {"enable_thinking": False, "ignore_eos": True},
}


def png(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (64, 96, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def data_url(seed: int) -> str:
    return "data:image/png;base64," + base64.b64encode(png(seed)).decode()


def part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "high"}}


def asked(url: str) -> list[Any]:
    return [{"role": "user", "content": [{"type": "text", "text": "what?"}, part(url)]}]


@pytest.fixture(scope="module")
def pictures() -> Iterator[str]:
    """A server of pictures on this machine."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = png(int(self.path[1:])) if self.path[1:].isdecimal() else b"no picture"
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *given: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()


@pytest.fixture(scope="module")
def seeing(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    engine = {"vision": True, "media_cache_mib": 4}
    with serving(micro_artifacts["dense"], engine=engine, private_media=True) as running:
        yield running


def answer(client: openai.OpenAI, messages: list[Any]) -> tuple[str | None, int]:
    reply = client.chat.completions.create(messages=messages, **OPTIONS)
    assert reply.usage is not None
    return reply.choices[0].message.content, reply.usage.prompt_tokens


def test_data_urls_and_downloads_are_the_same_picture(seeing: Server, pictures: str) -> None:
    with seeing.client() as client:
        first = answer(client, asked(data_url(1)))
        assert answer(client, asked(f"{pictures}/1")) == first
        other = answer(client, asked(data_url(2)))
        assert other[1] == first[1] and other[0] != first[0]
        odd = data_url(1).replace("data:image/png;base64,", "DATA:image/png;charset=utf-8;base64, ")
        assert answer(client, asked(odd)) == first
        streamed = "".join(
            chunk.choices[0].delta.content or ""
            for chunk in client.chat.completions.create(
                messages=asked(data_url(1)), stream=True, **OPTIONS
            )
        )
        assert streamed == first[0]


def test_a_picture_that_comes_again_is_not_decoded_again(
    seeing: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seeing.client() as client:
        before = answer(client, asked(data_url(7)))

        def unexpected(*given: Any) -> Any:
            raise AssertionError("decoded again")

        monkeypatch.setattr("ninfer.frontend.media.load.decode_image", unexpected)
        assert answer(client, asked(data_url(7))) == before


def test_c7_a_picture_in_a_tool_result_reaches_the_model(seeing: Server) -> None:
    """C7: a screenshot that a tool took."""
    call = {"id": "c", "type": "function", "function": {"name": "shot", "arguments": "{}"}}
    with seeing.client() as client:
        found = []
        for seed in (1, 2):
            content = [{"type": "text", "text": "here"}, part(data_url(seed))]
            messages = [
                {"role": "user", "content": "take one"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": content},
            ]
            found.append(answer(client, messages))
        assert found[0][0] != found[1][0] and found[0][1] == found[1][1]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("data:image/png;base64,AAAA", "messages[0].content[1]"),
        ("data:image/png;base64,@@@", "base64"),
        ("data:image/svg+xml;base64,PHN2Zy8+", "messages[0].content[1]"),
        ("file:///etc/passwd", "file of this machine"),
        ("/etc/passwd", "file of this machine"),
        ("ftp://a/b.png", "none of http"),
        ("PICTURES/x", "messages[0].content[1]"),
        ("http://127.0.0.1:9/x.png", "messages[0].content[1]"),
    ],
    ids=lambda value: value[:40],
)
def test_c8_bad_media_are_named(seeing: Server, pictures: str, url: str, words: str) -> None:
    """C8: 400 that names the part, so that a session can go on without it."""
    url = url.replace("PICTURES", pictures)
    for stream in (False, True):
        with seeing.client() as client, pytest.raises(openai.BadRequestError) as found:
            client.chat.completions.create(messages=asked(url), stream=stream, **OPTIONS)
        assert found.value.code == "invalid_media"
        assert found.value.param == "messages[0].content[1]"
        assert words in found.value.message


def test_private_networks_are_closed_unless_opened(
    micro_artifacts: dict[str, Path], pictures: str
) -> None:
    with (
        serving(micro_artifacts["dense"], engine={"vision": True}) as server,
        server.client() as client,
        pytest.raises(openai.BadRequestError, match="address"),
    ):
        client.chat.completions.create(messages=asked(f"{pictures}/1"), **OPTIONS)


def test_media_beyond_the_memory_for_them(micro_artifacts: dict[str, Path]) -> None:
    with serving(micro_artifacts["dense"], engine={"vision": True}) as server:
        object.__setattr__(server.service.options, "media_live_mib", 0)
        with server.client() as client, pytest.raises(openai.BadRequestError) as found:
            client.chat.completions.create(messages=asked(data_url(1)), **OPTIONS)
        assert found.value.code == "media_budget_exceeded"


def test_without_a_tower_pictures_are_refused(server: Server) -> None:
    with server.client() as client, pytest.raises(openai.BadRequestError) as found:
        client.chat.completions.create(messages=asked(data_url(1)), **OPTIONS)
    assert found.value.code == "vision_disabled"
    assert found.value.param == "messages[0].content[1]"
