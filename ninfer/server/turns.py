"""What the model wrote itself: kept beside the answers, so that a prompt can hold it again."""

import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from ninfer.request import (
    FinishReason,
    GenerationResult,
    Message,
    PreparedPrompt,
    Recall,
    ToolCall,
    WrittenTurn,
)

_TURN_START: Final = "<|im_start|>"
_OPEN, _CLOSE = "<think>", "</think>"
# What an entry takes beside its ids.
_ENTRY_BYTES: Final = 1024
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _Kept:
    opening: str
    ids: "array[int]"
    reasoning: bytes

    @property
    def size(self) -> int:
        """Bytes, at most."""
        return len(self.ids) * self.ids.itemsize + _ENTRY_BYTES


class WrittenTurns:
    """The latest answers, least recently used ones first to go. For several threads.

    An entry is found by the whole prompt of its answer, the key's owner and the visible text, so
    nobody gets what another conversation holds.
    """

    def __init__(self, special_ids: frozenset[int], turn_end: int | None) -> None:
        """`turn_end` is the id behind a whole turn; no other of `special_ids` is in one."""
        self._special = special_ids
        self._end = turn_end
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def keep(
        self,
        owner: int,
        prompt: PreparedPrompt,
        reasoning: str,
        content: str,
        result: GenerationResult,
    ) -> None:
        """Take in an answer that the model ended itself; others cannot be rendered alike."""
        ids = result.token_ids
        if not prompt.turn_key or result.finish_reason is not FinishReason.STOP_TOKEN:
            return
        if ids[-1] != self._end or not self._special.isdisjoint(ids[:-1]):
            return
        opening = prompt.text.rpartition(_TURN_START)[2]
        kept = _Kept(opening, array("I", ids), _digest(reasoning))
        key = _key(owner, prompt.turn_key, content, result.tool_calls)
        with self._lock:
            self._drop(key)
            self._kept[key] = kept
            self._size += kept.size
            while self._size > _MOST_BYTES:
                self._drop(next(iter(self._kept)))

    def recall_for(self, owner: int) -> Recall:
        """What finds the turns of one owner."""

        def recall(before: bytes, message: Message) -> WrittenTurn | None:
            if any(part.kind != "text" for part in message.content):
                return None
            given, content = _apart(message)
            key = _key(owner, before, content, message.tool_calls)
            with self._lock:
                kept = self._kept.get(key)
                if kept is None:
                    return None
                self._kept.move_to_end(key)
            # A client may leave a thought out. One that it has changed is no longer the model's.
            if given.strip() and _digest(given) != kept.reasoning:
                return None
            return WrittenTurn(kept.opening, tuple(kept.ids))

        return recall

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size


def _apart(message: Message) -> tuple[str, str]:
    """The thought and the visible text of a returned turn, as chat templates take it apart.

    Clients that have no member for a thought put it before the text, in tags.
    """
    text = "".join(part.text for part in message.content)
    if message.reasoning is not None or _CLOSE not in text:
        return message.reasoning or "", text
    thought = text.partition(_CLOSE)[0].rpartition(_OPEN)[2]
    return thought, text.rpartition(_CLOSE)[2]


def _key(owner: int, before: bytes, content: str, calls: Sequence[ToolCall]) -> bytes:
    shown = [content.strip(), [[call.name, _plain(call.arguments)] for call in calls]]
    text = json.dumps(shown, sort_keys=True)
    return blake2b(b"%d " % owner + before + text.encode(), digest_size=16).digest()


def _digest(text: str) -> bytes:
    return blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _plain(value: Any) -> Any:
    """JSON as any client would return it: many write the number 1.0 as 1."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
