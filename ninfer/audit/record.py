"""StoredResponse: one answer with all that is needed to judge it, to place it and to repeat it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ninfer.audit.members import built
from ninfer.errors import UsageError

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens as the server counted them; None where it did not."""

    prompt: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds. `first` is from sending to the first text, `total` to the end.

    `prefill` and `decode` are the engine's own, where it tells them.
    """

    total: float | None = None
    first: float | None = None
    prefill: float | None = None
    decode: float | None = None


@dataclass(frozen=True, slots=True)
class Drafts:
    """What speculation did for this response: `accepted_at[i]` counts drafts number i of rounds."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at: tuple[int, ...] = ()

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted; None without drafts."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_round(self) -> float | None:
        """One token of the model and the accepted drafts, by round; None without rounds."""
        return 1 + self.accepted / self.rounds if self.rounds else None


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote it: a server's address or an artifact, the model's name, what it ran on."""

    server: str = ""
    model: str = ""
    software: str = ""
    revision: str = ""
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response. Only `fixture`, `text` and `finish_reason` are required of other writers.

    `finish_reason` is the word of the server, `stop` what else it said of the stop. `contract` is
    an object as `parse_check` reads it. `pieces` are points of the time line: seconds since
    sending, and characters of reasoning and text until then. `case` is an index or name that tells
    responses of one fixture apart where seeds do not. `command` repeats it. `cut` says that the
    asker wanted the first tokens only, so that ending at its own limit is nothing against it.
    """

    fixture: str
    text: str
    finish_reason: str
    category: str = ""
    case: str = ""
    mode: str = ""
    sampling: str = ""
    seed: int | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    contract: Mapping[str, Any] | None = None
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    token_ids: tuple[int, ...] | None = None
    stop: str | int | None = None
    error: str | None = None
    usage: TokenCounts = field(default_factory=TokenCounts)
    timings: Timings = field(default_factory=Timings)
    drafts: Drafts | None = None
    pieces: tuple[tuple[float, int], ...] = ()
    origin: Origin = field(default_factory=Origin)
    command: str = ""
    cut: bool = False

    @property
    def key(self) -> tuple[str, str, int | None, str, str]:
        """What it answers: fixture, case, seed, sampling and mode."""
        return self.fixture, self.case, self.seed, self.sampling, self.mode

    @property
    def group(self) -> str:
        """The category, or the fixture where there is none."""
        return self.category or self.fixture

    @property
    def decode_rate(self) -> float | None:
        """(completion - 1) / decode seconds in tok/s; of the stream's, where no engine tells.

        None for a stream that held most of the text back until its end: its times say nothing.
        """
        tokens, times = self.usage.completion, self.timings
        seconds = times.decode
        if seconds is None and times.total is not None and times.first is not None:
            held = bool(self.pieces) and 2 * self.pieces[0][1] > self.pieces[-1][1]
            seconds = None if held else times.total - times.first
        if tokens is None or tokens < 2 or seconds is None or seconds <= 0:
            return None
        return (tokens - 1) / seconds

    def to_json(self) -> str:
        """One line without its end; half a surrogate pair, which a server may send, is escaped."""
        values = {"schema": SCHEMA, **asdict(self)}
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        try:
            text.encode()
        except UnicodeEncodeError:
            return json.dumps(values, separators=(",", ":"))
        return text


def response_of(values: Any, where: str) -> StoredResponse:
    """A response from its JSON object. Raises UsageError naming the wrong member."""
    if not isinstance(values, Mapping) or values.get("schema") != SCHEMA:
        raise UsageError(f"{where}: no response of schema {SCHEMA}")
    rest = {name: value for name, value in values.items() if name != "schema"}
    return built(StoredResponse, rest, where)
