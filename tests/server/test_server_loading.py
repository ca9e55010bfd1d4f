"""The port while weights are read: every route says so, and the server takes over without a gap."""

from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest
from serving import raw

from ninfer.server.loading import answering
from ninfer.server.serve import listen


@pytest.fixture
def port() -> Iterator[int]:
    with listen("127.0.0.1", 0) as listener, answering(listener):
        yield listener.getsockname()[1]


def test_health_says_loading(port: int) -> None:
    reply = httpx.get(f"http://127.0.0.1:{port}/health", timeout=60)
    assert (reply.status_code, reply.json()) == (503, {"status": "loading"})
    assert int(reply.headers["retry-after"]) > 0 and reply.headers["x-request-id"]


def test_clients_get_the_error_of_their_protocol(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    asked = [{"role": "user", "content": "x" * 300_000}]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    with client, pytest.raises(openai.InternalServerError) as openai_error:
        client.chat.completions.create(model="m", messages=asked)
    assert openai_error.value.code == "loading"
    other = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    with other, pytest.raises(anthropic.APIStatusError) as error:
        other.messages.create(model="m", max_tokens=5, messages=asked)
    assert error.value.body["error"]["type"] == "overloaded_error"


def test_bytes_that_are_no_request_harm_nobody(port: int) -> None:
    assert b"400" in raw(port, b"\x00\xff nonsense\r\n\r\n")
    assert raw(port, b"HEAD /health HTTP/1.1\r\nhost: a\r\n\r\n").endswith(b"\r\n\r\n")
    assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 503


def test_the_socket_is_handed_on() -> None:
    with listen("127.0.0.1", 0) as listener:
        with answering(listener):
            pass
        with answering(listener):
            port = listener.getsockname()[1]
            assert httpx.get(f"http://127.0.0.1:{port}/", timeout=60).status_code == 503
