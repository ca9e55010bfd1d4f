"""Answers of Completions: the whole object, and the chunks of a stream."""

import codecs
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ninfer.engine import TextSide
from ninfer.request import GenerationResult, TextDelta, TokenLogprob
from ninfer.server.answer import Answer, was_cut
from ninfer.server.errors import Fault, openai_body
from ninfer.server.exchange import Exchange, Numbered
from ninfer.server.openai.parts import finite, usage_of
from ninfer.server.sse import DONE, KEEP_ALIVE, data

if TYPE_CHECKING:
    from ninfer.server.openai.fields import SamplingFields


class Tokens:
    """Log-probabilities in the form of this protocol, with offsets into the text of a choice."""

    def __init__(self, text: TextSide) -> None:
        self._text = text
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(
        self, ids: Iterable[int], entries: Iterable[TokenLogprob | None], top: int
    ) -> dict[str, Any]:
        """The next tokens; an entry may be missing for the first token of a prompt."""
        offsets, names, values, best = [], [], [], []
        for token_id, entry in zip(ids, entries, strict=True):
            name = self._name(token_id)
            offsets.append(self._offset)
            names.append(name)
            values.append(None if entry is None else finite(entry.logprob))
            best.append(None if entry is None else self._best(entry, top))
            # A character that several tokens make up counts where its last one stands.
            self._offset += len(self._decoder.decode(self._text.token_bytes(token_id)))
        return {
            "text_offset": offsets,
            "tokens": names,
            "token_logprobs": values,
            "top_logprobs": best,
        }

    def _best(self, entry: TokenLogprob, top: int) -> dict[str, float]:
        return {self._name(token_id): finite(value) for token_id, value in entry.top[:top]}

    def _name(self, token_id: int) -> str:
        """The token's text; for one that is no whole characters its bytes, as OpenAI writes them.

        So no two of the best tokens have the same name.
        """
        raw = self._text.token_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class CompletionReply:
    """What all objects of one answer have in common, and the whole one."""

    def __init__(self, exchange: Exchange, body: "SamplingFields", text: TextSide) -> None:
        self.id: Final = f"cmpl-{uuid.uuid4().hex}"
        self.created: Final = int(time.time())
        self.exchange: Final = exchange
        self.body: Final = body
        self.text: Final = text
        self.echoes: Final[bool] = getattr(body, "echo", False)
        self.top: Final[int | None] = getattr(body, "logprobs", None)
        # Where no token was asked for, the one that was drawn is not shown.
        self.hides: Final = exchange.ask.max_tokens == 0

    def frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """An object with these choices."""
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.exchange.ask.model,
            "system_fingerprint": None,
            "choices": choices,
        }

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        """The object of an answer that is not streamed."""
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        return {**self.frame(choices), "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """The usage of all answers."""
        counted = usage_of(self.exchange.usage())
        if self.hides:
            counted["completion_tokens"] = 0
            counted["total_tokens"] = counted["prompt_tokens"]
        return counted

    def _choice(self, index: int, answer: Answer) -> dict[str, Any]:
        result = answer.ended
        text = "" if self.hides else "".join(answer.content)
        tokens = Tokens(self.text)
        logprobs = None
        if self.echoes:
            text = self.prompt(index) + text
        if self.top is not None:
            ids, entries = self.scored(index, result)
            logprobs = tokens.add(ids, entries, self.top)
        choice = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": self.finish(result),
            "stop_reason": result.stop_reason,
        }
        if self.body.return_token_ids:
            choice["prompt_token_ids"] = list(self.exchange.prompts[0].token_ids)
            choice["token_ids"] = [] if self.hides else list(result.token_ids)
        return choice

    def scored(
        self, index: int, result: GenerationResult
    ) -> tuple[list[int], list[TokenLogprob | None]]:
        """The ids of a choice with their log-probabilities, those of an echoed prompt first."""
        ids: list[int] = []
        entries: list[TokenLogprob | None] = []
        if self.echoes:
            ids += self.exchange.prompts[index // self.exchange.ask.count].token_ids
            entries += result.prompt_logprobs
        if not self.hides:
            ids += result.token_ids
            entries += result.logprobs
        return ids, entries

    def prompt(self, index: int) -> str:
        """The text of the prompt of a choice."""
        return self.exchange.prompts[index // self.exchange.ask.count].text

    def finish(self, result: GenerationResult) -> str:
        """The word for why a choice ended."""
        return "length" if self.hides or was_cut(result) else "stop"


class CompletionStream:
    """Chunks with pieces of text; the last one of a choice has its finish reason."""

    def __init__(self, reply: CompletionReply) -> None:
        self._reply = reply
        answers = reply.exchange.ask.answers
        self._begun = [False] * answers
        self._tokens = [Tokens(reply.text) for _ in range(answers)]

    def begin(self) -> bytes:
        """Nothing: the first chunk comes with the first token."""
        return b""

    def idle(self) -> bytes:
        """A comment."""
        return KEEP_ALIVE

    def events(self, news: list[Numbered]) -> bytes:
        """One chunk for each piece of text, and one for each end."""
        pieces = []
        for index, event in news:
            if isinstance(event, TextDelta):
                pieces.append(self._text(index, event))
            elif isinstance(event, GenerationResult):
                pieces.append(self._end(index, event))
        return b"".join(pieces)

    def _text(self, index: int, event: TextDelta) -> bytes:
        if self._reply.hides:
            return b""
        text = event.text
        if self._reply.echoes and not self._begun[index]:
            text = self._reply.prompt(index) + text
        self._begun[index] = True
        logprobs = None
        # Those of an echoed prompt come first, and only with the result.
        if self._reply.top is not None and not self._reply.echoes:
            ids = [entry.token_id for entry in event.logprobs]
            logprobs = self._tokens[index].add(ids, event.logprobs, self._reply.top)
        if not text and not event.logprobs:
            return b""
        return self._chunk(index, text, logprobs, None)

    def _end(self, index: int, result: GenerationResult) -> bytes:
        reply = self._reply
        logprobs, text = None, ""
        if reply.echoes and not self._begun[index]:
            text = reply.prompt(index)
        if reply.echoes and reply.top is not None:
            ids, entries = reply.scored(index, result)
            logprobs = self._tokens[index].add(ids, entries, reply.top)
        return self._chunk(index, text, logprobs, result)

    def _chunk(
        self,
        index: int,
        text: str,
        logprobs: dict[str, Any] | None,
        result: GenerationResult | None,
    ) -> bytes:
        choice: dict[str, Any] = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": None if result is None else self._reply.finish(result),
        }
        if result is not None:
            choice["stop_reason"] = result.stop_reason
        chunk = self._reply.frame([choice])
        if self._reply.body.wants_running_usage:
            chunk["usage"] = self._reply.usage()
        elif self._reply.body.wants_usage:
            chunk["usage"] = None
        return data(chunk)

    def end(self) -> bytes:
        """The usage, if it was asked for, and the end of the stream."""
        body = self._reply.body
        if not body.wants_usage:
            return DONE
        return data({**self._reply.frame([]), "usage": self._reply.usage()}) + DONE

    def failed(self, fault: Fault) -> bytes:
        """The error, in the place of what is missing."""
        return data(openai_body(fault)) + DONE
