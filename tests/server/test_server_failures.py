"""A failure of ours is told to the log once, with what is needed to find it."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from serving import Server, text_of

import ninfer.server.openai.chat as chat_module
import ninfer.server.reply as reply_module
from ninfer.errors import GenerationError, GrammarBackendError
from ninfer.server.openai.chat_reply import ChatReply, ChatStream

CHAT = "/v1/chat/completions"
BODY = {"messages": text_of("hi"), "max_tokens": 4, "enable_thinking": False}


class Lines(logging.Handler):
    """Records of warnings and errors, whichever logger they come from."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines(server: Server) -> Iterator[Lines]:
    handler = Lines()
    loggers = [logging.getLogger(), logging.getLogger("ninfer")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)


def broken(*given: Any) -> Any:
    raise ZeroDivisionError("inner state")


def failed(*given: Any) -> Any:
    raise GrammarBackendError("the library broke")


class _Nan:
    """Writes `place` tokens; then the model's numbers are none."""

    is_done = False

    def __init__(self, place: int = 0) -> None:
        self.place = place

    def forced(self) -> int:
        if not self.place:
            raise GenerationError("the logits are not finite")
        return 65

    def advance(self, token_id: int) -> None:
        self.place -= 1


def only(server: Server, lines: Lines) -> logging.LogRecord:
    server.settled()
    found = {id(record): record for record in lines.records}
    assert len(found) == 1, [record.getMessage() for record in found.values()]
    (record,) = found.values()
    assert record.levelno == logging.ERROR
    return record


@pytest.mark.parametrize("where", ["translation", "first token", "events", "answer"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_500_is_logged_once(
    server: Server, lines: Lines, monkeypatch: Any, where: str, known: bool
) -> None:
    fault = failed if known else broken
    if where == "translation":
        monkeypatch.setattr(chat_module, "ask_of", fault)
    elif where == "first token":
        monkeypatch.setattr(server.engine, "_forcer", lambda prompt, options: _Nan())
    elif where == "events":
        monkeypatch.setattr(reply_module, "put_together", fault)
    else:
        monkeypatch.setattr(ChatReply, "whole", fault)
    reply = server.post(CHAT, BODY)
    assert reply.status_code == 500
    record = only(server, lines)
    assert reply.headers["x-request-id"] in record.getMessage()
    traced = not known and where != "first token"
    assert (record.exc_info is not None) is traced


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_broken_stream_is_logged_once(
    server: Server, lines: Lines, monkeypatch: Any, known: bool
) -> None:
    if known:
        monkeypatch.setattr(server.engine, "_forcer", lambda prompt, options: _Nan(2))
    else:
        monkeypatch.setattr(ChatStream, "events", broken)
    *_, error, done = server.events(CHAT, BODY)
    assert done == "[DONE]" and error["error"]["code"] == "internal_error"
    assert (only(server, lines).exc_info is None) is known
