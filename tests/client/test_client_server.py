"""The protocol side: streams however cut, models under every name, failures that can be read."""

import json
import socket
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.client import (
    Answer,
    AnswerEnd,
    AnswerText,
    ChatOptions,
    ChatServer,
    Conversation,
    FunctionCall,
    ReasoningText,
    TokenUsage,
    check_chat,
    is_address,
    request_fields,
    root_of,
    run_command,
)
from ninfer.client.cards import ModelCard, parse_models
from ninfer.client.chunks import ChunkReader
from ninfer.client.images import LARGEST, image_url
from ninfer.client.sse import event_data
from ninfer.errors import ServerError, UsageError
from tests.client.scripted import USAGE, ScriptedRequest, ScriptedServer, delta, finish

Start = Callable[[Callable[[ScriptedRequest], None]], ScriptedServer]


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n")),
        max_size=4,
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_events_do_not_depend_on_the_cuts(texts: list[str], end: str, data: st.DataObject) -> None:
    stream = f": keep-alive{end}{end}"
    for text in texts:
        stream += f"event: x{end}data: {text}{end}data:{text}{end}{end}"
    raw = stream.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    pieces = [raw[a:b] for a, b in pairwise([0, *cuts, len(raw)])]
    # Of a value, one space behind the colon is not part.
    wanted = [f"{text}\n{text.removeprefix(' ')}" for text in texts]
    assert list(event_data(pieces)) == wanted


def test_unescaped_line_separators_of_unicode_do_not_cut_a_line() -> None:
    text = json.dumps({"a": "x\u2028y\x85z"}, ensure_ascii=False)
    assert list(event_data([f"data: {text}\n\n".encode()])) == [text]


def test_a_half_event_is_no_event() -> None:
    assert list(event_data([b"data: a\n\ndata: b\n"])) == ["a"]


def read(*chunks: object) -> list[object]:
    texts = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return list(ChunkReader("S").read(texts))


def test_an_answer_with_thinking_and_calls() -> None:
    events = read(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm", reasoning="hm"),
        delta(reasoning="!"),
        delta(content="Hi"),
        delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "}"}}]),
        finish("tool_calls"),
        USAGE,
        "[DONE]",
    )
    assert events == [
        ReasoningText("hm"),
        ReasoningText("!"),
        AnswerText("Hi"),
        FunctionCall("a", "f", "{}"),
        FunctionCall("b", "g", ""),
        AnswerEnd("tool_calls", TokenUsage(12, 7, 8, 3)),
    ]


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([delta(content="half")], "S: the connection ended before the answer did"),
        ([delta(content="half"), "[DONE]"], "S: the connection ended before the answer did"),
        ([{"error": {"message": "out of memory"}}, "[DONE]"], "S: out of memory"),
        ([{"error": "plain"}], "S: plain"),
        (["{"], "S: a chunk of the answer: not JSON"),
        (["7"], "S: a chunk of the answer is no object"),
    ],
)
def test_half_an_answer_is_an_error(chunks: list[object], message: str) -> None:
    with pytest.raises(ServerError) as caught:
        read(*chunks)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "context", "vision"),
    [
        ({"max_model_len": 9}, 9, False),
        ({"context_length": 9, "input_modalities": ["text", "image"]}, 9, True),
        ({"context_window": 9, "capabilities": {"vision": False}}, 9, False),
        ({"max_context_length": 9, "capabilities": {"vision": True}}, 9, True),
        ({"meta": {"n_ctx": 9}, "architecture": {"input_modalities": ["image"]}}, 9, True),
        ({"max_model_len": True, "capabilities": ["completion", "vision"]}, None, True),
        ({"max_model_len": None}, None, False),
    ],
)
def test_models_are_read_under_every_name(
    entry: dict[str, object], context: int | None, vision: bool
) -> None:
    assert parse_models({"data": [{"id": "m", **entry}]}) == [ModelCard("m", context, vision)]


@pytest.mark.parametrize("body", [None, [], {"data": "x"}, {"data": [{"id": 3}, 7]}])
def test_a_body_without_models_has_none(body: object) -> None:
    assert parse_models(body) == []


def test_the_request_and_the_key(scripted_server: Start) -> None:
    def script(request: ScriptedRequest) -> None:
        if request.command == "GET":
            request.reply({"data": [{"id": "m", "max_model_len": 4096}]})
        else:
            request.stream(delta(content="ok"), finish(), USAGE, "[DONE]")

    server = scripted_server(script)
    with ChatServer(server.root, "k3y") as client:
        assert client.models() == [ModelCard("m", 4096)]
        events = list(client.stream({"model": "m", "messages": []}))
    assert events[0] == AnswerText("ok")
    (_, path, headers, _), (_, posted, _, body) = server.seen
    assert path == "/v1/models" and headers["Authorization"] == "Bearer k3y"
    assert posted == "/v1/chat/completions"
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True}


def test_closing_the_iterator_closes_the_connection(scripted_server: Start) -> None:
    go = threading.Event()

    def script(request: ScriptedRequest) -> None:
        request.begin_stream()
        request.send(delta(content="a"))
        go.wait(60)
        for _ in range(200):
            request.send(delta(content="b" * 4096))

    server = scripted_server(script)
    with ChatServer(server.root) as client:
        events = client.stream({"messages": []})
        assert next(events) == AnswerText("a")
        events.close()
        go.set()
        assert server.left.wait(60)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, {"error": {"message": "wrong key"}}, "401 wrong key; set MY_KEY to the server's key"),
        (400, {"type": "error", "error": {"type": "t", "message": "too long"}}, "400 too long"),
        (503, b"upstream is\n down", "503 upstream is down"),
        (500, b"", "500 Internal Server Error"),
        (404, {"detail": "Not Found"}, '404 {"detail": "Not Found"}'),
    ],
)
def test_refusals_are_shown(
    scripted_server: Start, status: int, body: object, message: str
) -> None:
    server = scripted_server(lambda request: request.reply(body, status))
    with ChatServer(server.root, "k3y", "MY_KEY") as client, pytest.raises(ServerError) as caught:
        list(client.stream({"messages": []}))
    assert str(caught.value) == f"{server.root}: {message}"
    assert caught.value.status == status


def test_a_server_of_something_else_is_told(scripted_server: Start) -> None:
    server = scripted_server(lambda request: request.reply(b"<html>"))
    with ChatServer(server.root) as client:
        with pytest.raises(ServerError, match="is not JSON; is this a server of the OpenAI"):
            client.models()
        with pytest.raises(ServerError, match="answered with application/json, not a stream"):
            list(client.stream({"messages": []}))


def test_a_server_that_is_away_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        root = f"http://127.0.0.1:{free.getsockname()[1]}"
    with ChatServer(root) as client, pytest.raises(ServerError) as caught:
        client.models()
    assert str(caught.value).startswith(f"{root}: no server answers (")
    assert "ninfer serve ARTIFACT" in str(caught.value) and caught.value.status is None


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("localhost", "http://localhost"),
        ("https://h.example/v1/", "https://h.example"),
        ("http://h:1/base/v1", "http://h:1/base"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_addresses(text: str, root: str) -> None:
    assert is_address(text) and root_of(text) == root


@pytest.mark.parametrize(
    "text", ["ftp://h", "http://", "http://h:99999", "http://h?x=1", "http://[::1", "http://a b"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be an address such as"):
        root_of(text)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        root_of("http://user:secret@h:80")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["model.ninfer", "tiny", "a/b:c", "/tmp/x.ninfer", "C:\\m"])
def test_a_file_is_no_address(text: str) -> None:
    assert not is_address(text)


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8


def test_a_conversation_keeps_what_was_said(tmp_path: Path) -> None:
    picture = tmp_path / "a picture.bin"
    picture.write_bytes(PNG)
    talk = Conversation()
    done = run_command("/system be brief", talk)
    assert done is not None and done.text == "system: be brief"
    done = run_command(f"/image '{picture}'", talk)
    assert done is not None and done.text.startswith("1 image")
    talk.ask("what?")
    system, question = talk.messages
    assert system == {"role": "system", "content": "be brief"}
    assert question["content"][0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert question["content"][1] == {"type": "text", "text": "what?"}
    assert talk.close_turn(Answer()) is False  # nothing was said: the image waits again
    assert talk.messages == [system] and talk.pending_images == 1
    run_command("/image", talk)
    assert talk.pending_images == 0
    talk.ask("again?")
    call = FunctionCall("c", "f", "{}")
    answer = Answer("hm", "half", [call], None)
    assert talk.close_turn(answer)
    assert talk.messages[-1] == {
        "role": "assistant",
        "content": "half",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }
    run_command("/reset", talk)
    assert talk.messages == [system] and talk.pending_images == 0


def test_save_replaces_only_its_own_file(tmp_path: Path) -> None:
    talk = Conversation("s")
    file = tmp_path / "talk.json"
    run_command(f"/save {file}", talk)
    run_command(f"/save {file}", talk)
    assert json.loads(file.read_text()) == {"messages": [{"role": "system", "content": "s"}]}
    with pytest.raises(UsageError, match="exists; choose another name"):
        run_command(f"/save {file}", Conversation())
    with pytest.raises(UsageError, match="No such file or directory"):
        run_command(f"/save {tmp_path}/none/x", talk)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/sistem x", "/sistem: unknown; did you mean /system?"),
        ("/xyzzy", "/xyzzy: unknown; /help lists the commands"),
        ("/image a b", "/image takes one PATH"),
        ("/image 'a", "/image 'a: No closing quotation"),
        ("/image /nonexistent.png", "/nonexistent.png: No such file or directory"),
    ],
)
def test_commands_that_cannot_be_done(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_command(line, Conversation())
    assert message in str(caught.value)


def test_questions_are_no_commands() -> None:
    talk = Conversation()
    assert run_command("what is /etc?", talk) is None
    assert run_command("//etc is what?", talk) is None
    done = run_command("/quit", talk)
    assert done is not None and done.quits
    done = run_command("/help", talk)
    assert done is not None and "/image" in done.text and "/save" in done.text


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "png"),
        (b"\xff\xd8\xff\xe0", "jpeg"),
        (b"GIF89a", "gif"),
        (b"RIFF\0\0\0\0WEBP", "webp"),
        (b"BM\0", "bmp"),
    ],
)
def test_images_are_known_by_their_bytes(data: bytes, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_bytes(data)
    assert image_url(file).startswith(f"data:image/{kind};base64,")


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    file.write_bytes(b"RIFF\0\0\0\0WAVE")
    with pytest.raises(UsageError, match="no PNG, JPEG, WebP, GIF or BMP"):
        image_url(file)
    with file.open("wb") as big:
        big.truncate(LARGEST + 1)
    with pytest.raises(UsageError, match="an image may have 32 MiB"):
        image_url(file)


def test_options_become_fields() -> None:
    options = ChatOptions(max_new=9, thinking=False, temperature=0.0, seed=3, system="s")
    assert request_fields(options) == {
        "max_completion_tokens": 9,
        "temperature": 0.0,
        "seed": 3,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert request_fields(ChatOptions()) == {}
    for bad in (ChatOptions(temperature=float("nan")), ChatOptions(max_new=0)):
        with pytest.raises(UsageError):
            check_chat(bad)
