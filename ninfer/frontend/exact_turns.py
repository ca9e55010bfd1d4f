"""Encoding of a rendered prompt in which turns of the model keep the ids that it wrote.

Text that is parsed, sent to a client, returned and rendered again may differ from what was
generated: white space, spelling of arguments, thoughts that the client does not return, or the
same text in other tokens.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ninfer.frontend.reasoning import TURN_END, TURN_START
from ninfer.frontend.tokenizer import Tokenizer
from ninfer.request import Conversation, Media, Message, Recall, WrittenTurn

_ANSWER: Final = "assistant\n"


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Ids and their text. `turn_key` is the digest of all before the turn that is to be written;
    empty where there is none, or where the template's turns are not those of the messages."""

    ids: list[int]
    text: str
    turn_key: bytes = b""


def encode_exactly(
    rendered: str,
    mark: str,
    tokenizer: Tokenizer,
    conversation: Conversation,
    media: Sequence[Media],
    recall: Recall,
) -> EncodedPrompt:
    """Encode `rendered`, in which `mark` breaks control text of clients.

    A turn of the model takes the ids that `recall` knows for it if all before it has the same ids
    and media as then, and if it is rendered with the same opening: one whose thought the template
    leaves out stays as rendered.
    """
    head, *turns = rendered.split(TURN_START)
    messages = list(_answers(conversation))
    written = [turn.startswith(_ANSWER) for turn in turns]
    is_open = conversation.template.add_generation_prompt
    if sum(written) != len(messages) + is_open or (is_open and not written[-1]):
        return EncodedPrompt(tokenizer.encode(rendered, mark=mark), _shown(rendered, mark))
    ids = tokenizer.encode(head, mark=mark)
    text = [_shown(head, mark)]
    digest = hashlib.blake2b(_bytes(ids), digest_size=16)
    key, answers = b"", iter(messages)
    for turn, is_answer in zip(turns, written, strict=True):
        known = None
        if is_answer:
            message, seen = next(answers, (None, len(media)))
            key = _key(digest, media[:seen])
            known = recall(key, message) if message else None
        more, said = _turn(turn, known, mark, tokenizer)
        digest.update(_bytes(more))
        ids += more
        text.append(said)
    begun = conversation.begun or conversation.begun_thought
    open_key = key if is_open and not begun else b""
    return EncodedPrompt(ids, "".join(text), open_key)


def _answers(conversation: Conversation) -> Iterator[tuple[Message, int]]:
    """The assistant's turns, each with the number of media before it."""
    seen = 0
    for message in conversation.messages:
        if message.role == "assistant":
            yield message, seen
        seen += sum(part.kind != "text" for part in message.content)


def _turn(
    turn: str, known: WrittenTurn | None, mark: str, tokenizer: Tokenizer
) -> tuple[list[int], str]:
    """Ids and text of one turn, with the token that opens it."""
    if known is None or not turn.startswith(known.opening) or turn.count(TURN_END) != 1:
        turn = TURN_START + turn
        return tokenizer.encode(turn, mark=mark), _shown(turn, mark)
    opening, rest = TURN_START + known.opening, turn.partition(TURN_END)[2]
    said = b"".join(map(tokenizer.token_bytes, known.token_ids)).decode(errors="replace")
    ids = [*tokenizer.encode(opening), *known.token_ids, *tokenizer.encode(rest)]
    return ids, opening + said + rest


def _key(digest: "hashlib.blake2b", media: Sequence[Media]) -> bytes:
    own = digest.copy()
    for item in media:
        own.update(item.digest)
    return own.digest()


def _bytes(ids: Sequence[int]) -> bytes:
    return array("I", ids).tobytes()


def _shown(text: str, mark: str) -> str:
    return text.replace(mark, "") if mark else text
