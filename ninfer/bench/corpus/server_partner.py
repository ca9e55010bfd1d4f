"""A server of the OpenAI protocol as the partner of a campaign, ours or another, unpatched."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from ninfer.audit import Drafts, Origin, StoredResponse, Timings, TokenCounts
from ninfer.audit.counters import COUNTERS, counted_drafts, drafts_since
from ninfer.bench.corpus.asked import command_of, kept_request
from ninfer.bench.corpus.plan import Ask
from ninfer.bench.corpus.time_line import TimeLine
from ninfer.client import (
    Answer,
    AnswerEnd,
    AnswerText,
    ChatServer,
    EndDetails,
    FunctionCall,
    ModelCard,
    ReasoningText,
    TokenUsage,
)
from ninfer.errors import ServerError, UsageError

# Members that servers beside OpenAI's have: not sent where extensions are off.
_EXTENSIONS: Final = ("top_k", "min_p", "repetition_penalty")
_SPEC: Final = re.compile(r'^ninfer_model_info\{[^}]*spec="([a-z0-9]+)"', re.MULTILINE)


class ServerPartner:
    """Asks one model of a server."""

    def __init__(
        self,
        server: ChatServer,
        cards: Sequence[ModelCard],
        *,
        model: str | None,
        extensions: bool,
        alone: bool,
        hardware: str = "",
    ) -> None:
        """`cards` are the models that it lists; `alone` says that requests come one at a time, so
        that counters belong to one.

        Raises ServerError for a server that does not answer, UsageError for one without a model.
        """
        names = [card.id for card in cards]
        if model is None and not names:
            raise UsageError(f"{server.root}: lists no model; name one with --model")
        self.model: Final = model or names[0]
        self.context: Final = next((c.context for c in cards if c.id == self.model), None)
        self._server, self._extensions, self._alone = server, extensions, alone
        page = server.page("/metrics") or ""
        spec = _SPEC.search(page)
        # Only our own server says what drafts its tokens.
        self.said_mode: Final = "server" if spec is None else spec[1].replace("none", "plain")
        software = "ninfer" if spec is not None else ""
        self._origin = Origin(server.root, self.model, software, hardware=hardware)
        self._has_counters = COUNTERS["rounds"] in page

    def answer(self, ask: Ask, mode: str) -> StoredResponse:
        """The response of the server, or what kept it from one."""
        body = self._body(ask)
        answer, details, error = Answer(), EndDetails(), None
        before = self._drafts() if self._alone and self._has_counters else None
        line = TimeLine()
        try:
            with closing(self._server.stream(body)) as events:
                for event in events:
                    if isinstance(event, ReasoningText | AnswerText):
                        line.add(len(event.text))
                    elif isinstance(event, FunctionCall):
                        line.add(len(event.arguments))
                    elif isinstance(event, AnswerEnd):
                        details = event.details
                    answer.add(event)
        except ServerError as failure:
            error = str(failure)
        total = line.seconds()
        counted = None if before is None else drafts_since(before, self._drafts())
        told = _told(details)
        target = ("--server", self._server.root, "--model", self.model)
        more = () if self._extensions else ("--no-extensions",)
        return StoredResponse(
            fixture=ask.fixture.name,
            category=ask.fixture.category,
            mode=mode,
            sampling=ask.sampling,
            seed=ask.seed,
            request=kept_request(body),
            contract=ask.fixture.contract,
            text=answer.text,
            reasoning=answer.reasoning,
            tool_calls=tuple(_call(call) for call in answer.calls),
            finish_reason="error" if answer.end is None else answer.end.reason,
            stop=details.stop,
            error=error,
            token_ids=details.token_ids or None,
            usage=_counts(answer.end.usage if answer.end else None),
            timings=Timings(total, line.first, details.prefill_seconds, details.decode_seconds),
            drafts=told or counted,
            pieces=line.points,
            origin=self._origin,
            command=command_of(target, ask, mode, more),
        )

    def _body(self, ask: Ask) -> dict[str, Any]:
        drawing = {
            name: value
            for name, value in ask.drawing.items()
            if self._extensions or name not in _EXTENSIONS
        }
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(ask.fixture.messages),
            "max_tokens": ask.max_new,
            "seed": ask.seed,
            **drawing,
        }
        if self._extensions:
            body["return_token_ids"] = True
            body["chat_template_kwargs"] = {"enable_thinking": ask.fixture.thinking}
        return body

    def _drafts(self) -> Drafts:
        return counted_drafts(self._server.page("/metrics") or "")


def listed_models(server: ChatServer, *, named: bool) -> list[ModelCard]:
    """The models of a server; one that cannot list them may do without where one is named.

    Raises ServerError. Ask on a connection of its own: after a failure some servers drop it.
    """
    try:
        return server.models()
    except ServerError as error:
        if named and error.status is not None and error.status not in (401, 403):
            return []
        raise


def _told(details: EndDetails) -> Drafts | None:
    if not details.drafted:
        return None
    return replace(Drafts(), drafted=details.drafted, accepted=details.accepted or 0)


def _counts(usage: TokenUsage | None) -> TokenCounts:
    if usage is None:
        return TokenCounts()
    return TokenCounts(usage.prompt, usage.completion, usage.reasoning, usage.cached)


def _call(call: FunctionCall) -> Mapping[str, Any]:
    return {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
