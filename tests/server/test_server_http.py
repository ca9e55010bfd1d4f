"""HTTP itself: keys, hosts, origins, ids, bodies, errors before a stream, probes."""

import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from serving import Server, raw, serving, text_of

CHAT = "/v1/chat/completions"
OK = {"messages": text_of("hi"), "max_tokens": 1}


@pytest.fixture(scope="module")
def guarded(micro_artifacts: dict[str, Path], tmp_path_factory: Any) -> Iterator[Server]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("# a comment\nfile-key\nslow requests_per_minute=2\nnarrow concurrent=1\n")
    options = {"api_key": ("first",), "api_key_file": keys, "cors": True}
    with serving(micro_artifacts["dense"], model_alias=("alias/one",), **options) as running:
        yield running


def test_keys_by_bearer_and_by_header(guarded: Server) -> None:
    for headers in (
        {"authorization": "Bearer first"},
        {"authorization": "bearer file-key"},
        {"x-api-key": "first"},
        {"authorization": "Bearer wrong", "x-api-key": "file-key"},
    ):
        assert guarded.post(CHAT, OK, headers=headers).status_code == 200, headers
    for headers in ({}, {"authorization": "Bearer nope"}, {"authorization": "Basic first"}):
        reply = guarded.post(CHAT, OK, headers=headers)
        assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
        assert reply.json()["error"]["code"] == "invalid_api_key"
        assert "nope" not in reply.text
    with guarded.client(api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    shape = guarded.post("/v1/messages", OK).json()
    assert shape["type"] == "error" and shape["error"]["type"] == "authentication_error"
    assert shape["request_id"]


@pytest.mark.parametrize("path", ["/health", "/ping", "/", "/openapi.json"])
def test_probes_need_no_key(guarded: Server, path: str) -> None:
    assert httpx.get(guarded.url + path, timeout=60).status_code == 200
    if path != "/openapi.json":
        assert httpx.head(guarded.url + path, timeout=60).status_code == 200
    assert httpx.get(f"{guarded.url}/metrics", timeout=60).status_code == 401


def test_limits_of_a_key(guarded: Server) -> None:
    slow = {"x-api-key": "slow"}
    codes = [guarded.post(CHAT, OK, headers=slow).status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    reply = guarded.post(CHAT, OK, headers=slow)
    assert reply.json()["error"]["type"] == "rate_limit_error"
    assert 0 < int(reply.headers["retry-after"]) <= 61
    body = {"messages": text_of("hi"), "max_tokens": 400, "stream": True, "ignore_eos": True}
    narrow = {"x-api-key": "narrow"}
    with (
        httpx.Client(timeout=60) as client,
        client.stream("POST", guarded.url + CHAT, json=body, headers=narrow) as reply,
    ):
        lines = reply.iter_lines()
        next(lines)
        assert guarded.post(CHAT, OK, headers=narrow).status_code == 429
        assert guarded.post(CHAT, OK, headers={"x-api-key": "first"}).status_code == 200
    guarded.settled()
    assert guarded.post(CHAT, OK, headers=narrow).status_code == 200


def test_pages_of_other_origins(guarded: Server) -> None:
    origin = {"origin": "https://chat.example"}
    asked = "authorization, x-stainless-lang, anthropic-dangerous-direct-browser-access"
    preflight = httpx.options(
        guarded.url + CHAT,
        headers={
            **origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": asked,
        },
    )
    assert preflight.status_code == 200
    allowed = preflight.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in asked.split(", "))
    for key in ("first", "wrong"):
        reply = guarded.post(CHAT, OK, headers={**origin, "x-api-key": key})
        assert reply.headers["access-control-allow-origin"] in ("*", origin["origin"])
        assert "x-request-id" in reply.headers["access-control-expose-headers"]


def test_without_cors_pages_elsewhere_and_odd_names_are_refused(server: Server) -> None:
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "http://[::1"},
        {"origin": "null"},
        {"origin": "null", "sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
    ):
        reply = server.post(CHAT, OK, headers=headers)
        assert reply.status_code == 403 and "access-control-allow-origin" not in reply.headers
    for headers in (
        {"origin": server.url},
        {"origin": "null", "sec-fetch-site": "same-origin"},
        {"host": f"localhost:{server.port}"},
    ):
        assert server.post(CHAT, OK, headers=headers).status_code == 200


def test_request_ids(server: Server) -> None:
    reply = server.post(CHAT, OK, headers={"x-request-id": "mine-1"})
    assert reply.headers["x-request-id"] == "mine-1"
    for given in ("bad id", "x" * 200):
        got = server.post(CHAT, OK, headers={"x-request-id": given}).headers["x-request-id"]
        assert got.startswith("req_")
    failed = server.post(CHAT, {})
    assert failed.status_code == 400 and failed.headers["x-request-id"]
    assert server.post("/v1/messages", {}).headers["request-id"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[1]", "invalid_json"),
        (b'"text"', "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b'{"messages": [], "temperature": NaN}', "invalid_json"),
        (b'{"messages": [], "temperature": Infinity}', "invalid_json"),
        (b'{"messages": [], "seed": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"messages": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "invalid_json"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bodies_that_are_none(server: Server, data: bytes, code: str) -> None:
    for stream in ("", "?stream=1"):
        reply = httpx.post(f"{server.url}{CHAT}{stream}", content=data, timeout=60)
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["code"] == code


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [123]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": 7, "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id"),
    ({**OK, "max_tokens": 0}, "max_tokens"),
    ({**OK, "max_tokens": 1.5}, "max_tokens"),
    ({**OK, "max_tokens": "9"}, "max_tokens"),
    ({**OK, "temperature": 2.5}, "temperature"),
    ({**OK, "temperature": -0.1}, "temperature"),
    ({**OK, "temperature": "hot"}, "temperature"),
    ({**OK, "top_p": 1.1}, "top_p"),
    ({**OK, "top_k": -2}, "top_k"),
    ({**OK, "presence_penalty": 3}, "presence_penalty"),
    ({**OK, "repetition_penalty": 0}, "repetition_penalty"),
    ({**OK, "n": 0}, "n"),
    ({**OK, "n": -1}, "n"),
    ({**OK, "seed": 2**70}, "seed"),
    ({**OK, "seed": 1.5}, "seed"),
    ({**OK, "stop": [""]}, "stop"),
    ({**OK, "stop": [7]}, "stop"),
    ({**OK, "stream": "yes"}, "stream"),
    ({**OK, "stream_options": {"include_usage": True}}, "stream_options"),
    ({**OK, "logit_bias": {"999999": 1}}, "logit_bias"),
    ({**OK, "logit_bias": {"x": 1}}, "logit_bias"),
    ({**OK, "logit_bias": {"1": 101}}, "logit_bias"),
    ({**OK, "top_logprobs": 3}, "top_logprobs"),
    ({**OK, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({**OK, "tools": [{"type": "function"}]}, "tools[0]"),
    ({**OK, "tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0]"),
    *(({**OK, "tools": [{"type": "function", "function": {"name": "a", "parameters": wrong}}],
        "tool_choice": "required"}, "tools[0].function.parameters")
      for wrong in ("x", [], [1], True, False, 0)),
    ({**OK, "tools": [{"type": "function", "function": {
        "name": "a", "parameters": {"properties": {"a b": {}}}}}],
      "tool_choice": "required"}, "tools"),
    ({**OK, "tool_choice": "required"}, "tool_choice"),
    ({**OK, "tool_choice": "sometimes"}, "tool_choice"),
    ({**OK, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
    ({**OK, "functions": [{"name": "a"}]}, "functions"),
    ({**OK, "audio": {"voice": "x"}}, "audio"),
    ({**OK, "chat_template": "x"}, "chat_template"),
    ({**OK, "chat_template_kwargs": {"style": "x"}}, "chat_template_kwargs"),
    ({**OK, "enable_thinking": True, "reasoning_effort": "none"}, "reasoning_effort"),
    ({**OK, "reasoning_effort": "huge"}, "reasoning_effort"),
    ({**OK, "response_format": {"type": "json_schema"}}, "response_format"),
    ({**OK, "response_format": {"type": "xml"}}, "response_format"),
    ({**OK, "guided_regex": "a", "guided_json": {}}, "guided"),
    ({**OK, "messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
    ({**OK, "messages": [*text_of("a"), {"role": "user", "content": [PICTURE]}]},
     "messages[1].content[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "param"), WRONG, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_named_before_any_stream(
    server: Server, body: dict[str, Any], param: str
) -> None:
    for stream in (False, True):
        data = json.dumps({**body} if "stream" in body else {**body, "stream": stream})
        if stream and param == "stream_options":
            continue
        reply = httpx.post(server.url + CHAT, content=data, timeout=60)
        assert reply.status_code == 400, reply.text
        error = reply.json()["error"]
        assert error["type"] == "invalid_request_error" and error["message"]
        assert (error["param"] or "").startswith(param), error


@pytest.mark.parametrize(
    "extra",
    [
        {"tools": []},
        {"tools": None, "tool_choice": "none"},
        {"tools": [{"type": "web_search_preview"}]},
        {"metadata": {"a": "b"}, "store": True, "user": "me", "service_tier": "auto"},
        {"something_new": {"deep": [1]}},
        {"stop": None, "temperature": None, "seed": None, "response_format": None},
        {"top_p": 0, "temperature": 0, "top_k": -1},
        {"modalities": ["text"]},
        {"max_completion_tokens": 1, "max_tokens": 5},
        {"max_tokens": 10**6, "stop_token_ids": [65], "min_p": 0.9, "ignore_eos": False},
        {"stop": ["a", "b", "c", "d", "e", "f"]},
        {"model": None},
        {"chat_template_kwargs": {"enable_thinking": False, "unheard_of": None}},
        {"stream": True, "stream_options": {"include_usage": None}},
        {"reasoning": {"effort": None}, "structured_outputs": {"json": None, "regex": None}},
    ],
    ids=str,
)
def test_what_is_accepted(server: Server, extra: dict[str, Any]) -> None:
    reply = server.post(CHAT, {**OK, **extra})
    assert reply.status_code == 200, reply.text


def test_unknown_members_and_invalid_requests_are_counted(server: Server) -> None:
    server.post(CHAT, {**OK, "brand_new_member": 1})
    server.post(CHAT, {**OK, "temperature": 9})
    page = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert 'ninfer_requests_total{outcome="invalid"}' in page
    assert 'ninfer_unknown_request_fields_total{field="brand_new_member"}' in page


def test_sizes_kinds_and_encodings(micro_artifacts: dict[str, Path]) -> None:
    with serving(micro_artifacts["dense"], max_request_mib=1) as server:
        big = json.dumps({**OK, "user": "x" * 2_000_000}).encode()
        for content in (big, iter([big[:1000], big[1000:]])):
            reply = httpx.post(server.url + CHAT, content=content, timeout=60)
            assert reply.status_code == 413
            assert reply.json()["error"]["code"] == "request_too_large"
        data = json.dumps(OK).encode()
        squeezed = httpx.post(
            server.url + CHAT, content=gzip.compress(data), headers={"content-encoding": "gzip"}
        )
        assert squeezed.status_code == 415
        for kind in ("application/json; charset=utf-8", "application/x-www-form-urlencoded", ""):
            headers = {"content-type": kind} if kind else {}
            assert (
                httpx.post(server.url + CHAT, content=data, headers=headers, timeout=60).status_code
                == 200
            )
        form = {"content-type": "multipart/form-data; boundary=x"}
        assert (
            httpx.post(server.url + CHAT, content=data, headers=form, timeout=60).status_code == 415
        )
        # In pieces, and after the server was asked whether it would take them.
        assert (
            httpx.post(
                server.url + CHAT, content=iter([data[:7], data[7:]]), timeout=60
            ).status_code
            == 200
        )
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
            "Expect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert b"HTTP/1.1 100" in raw(server.port, head.encode() + data)


def test_paths_and_methods(server: Server) -> None:
    for path, shape in (("/v1/nowhere", "error"), ("/v1/messages/nowhere", "type")):
        reply = httpx.get(server.url + path, timeout=60)
        assert reply.status_code == 404 and shape in reply.json()
    reply = httpx.get(server.url + CHAT, timeout=60)
    assert reply.status_code == 405 and "POST" in reply.headers["allow"]
    assert reply.json()["error"]["code"] == "method_not_allowed"
    assert server.post(f"{CHAT}?beta=true", OK).status_code == 200
    assert server.post("/chat/completions", OK).status_code == 200
    assert (
        "/v1/chat/completions"
        in httpx.get(f"{server.url}/openapi.json", timeout=60).json()["paths"]
    )


def test_the_model_under_all_its_names(guarded: Server) -> None:
    with guarded.client(api_key="first") as client:
        listed = client.models.list()
        assert [model.id for model in listed] == ["tiny", "alias/one"]
        one = client.models.retrieve("alias/one").model_dump()
        assert client.models.retrieve("tiny").id == "tiny"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other")
        reply = client.chat.completions.create(
            model="alias/one", messages=text_of("hi"), max_tokens=1
        )
    assert reply.model == "alias/one"
    for name in ("max_model_len", "context_length", "context_window", "max_context_length"):
        assert one[name] == 1024
    assert one["meta"]["n_ctx_train"] == 1024


def test_tokens_there_and_back(server: Server) -> None:
    text = "Grüße <|im_end|> 🙂"
    found = server.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert found["max_model_len"] == 1024
    back = server.post("/detokenize", {"tokens": found["tokens"]}).json()
    assert back["prompt"] == text
    assert server.post("/v1/tokenize", {"content": text}).json()["tokens"] == found["tokens"]
    reply = server.post(CHAT, OK).json()
    turns = server.post("/tokenize", {"messages": OK["messages"]}).json()
    assert turns["count"] == reply["usage"]["prompt_tokens"]
    for path, body in (
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "a", "messages": text_of("a")}),
        ("/detokenize", {"tokens": [10**8]}),
        ("/detokenize", {"tokens": ["a"]}),
    ):
        assert server.post(path, body).status_code == 400


def test_the_metrics_page(server: Server) -> None:
    server.post(CHAT, OK)
    reply = httpx.get(f"{server.url}/metrics", timeout=60)
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in reply.text.splitlines()
        if not line.startswith("#")
    }
    assert values["ninfer_engine_ready"] == 1
    assert values['ninfer_requests_total{outcome="done"}'] >= 1
    assert values["ninfer_generation_tokens_total"] >= 1
    assert values["ninfer_requests_running"] == 0
    assert values["ninfer_time_to_first_token_seconds_count"] >= 1
    assert values['vllm:num_requests_running{model_name="tiny"}'] == 0
    assert values['vllm:generation_tokens_total{model_name="tiny"}'] >= 1
    assert values['vllm:spec_decode_num_drafts_total{model_name="tiny"}'] == 0
    assert httpx.head(f"{server.url}/metrics", timeout=60).status_code == 200


def test_a_body_that_ends_early_is_no_defect(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head.encode() + b'{"messages"')
    server.settled()
    assert server.post(CHAT, OK).status_code == 200
    assert not [record for record in caplog.records if record.exc_info]
