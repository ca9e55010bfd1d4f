"""Text to token ids and ids to bytes, for byte-level BPE tokenizers of the Qwen family."""

import re
from collections.abc import Collection
from typing import Any, Final

import tokenizers

from ninfer.errors import ArtifactError, GenerationError, PromptError
from ninfer.json_text import parse_json

_CONFIG_NAME: Final = "tokenizer_config.json"
_ID_PATTERN: Final = re.compile(r"0|[1-9][0-9]{0,8}")


class Tokenizer:
    """A loaded tokenizer. Immutable after construction; encoding is thread-safe.

    Prompts are encoded whole and always alike: truncation, padding and dropout that
    `tokenizer.json` may hold from training are switched off.

    `added` maps the text of each added token to its id, `special` the subset that the files flag
    as special (turn and media markers; not the tags of thoughts and tools). `addressable` is the
    largest id plus one; ids below it that name no token have no bytes.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        """Wrap `backend`, which this object owns from now on."""
        backend.no_truncation()
        backend.no_padding()
        if isinstance(backend.model, tokenizers.models.BPE):
            backend.model.dropout = None
        added = backend.get_added_tokens_decoder()
        self.added: Final = {token.content: index for index, token in added.items()}
        self.special: Final = {
            token.content: index for index, token in added.items() if token.special
        }
        self.addressable: Final = max(backend.get_vocab(with_added_tokens=True).values()) + 1
        # Special tokens are found here, not in the library: only so can text that merely looks
        # like one be told from one that the template wrote. All other added tokens stay there.
        backend.encode_special_tokens = True
        self._backend = backend
        longest_first = sorted(self.special, key=len, reverse=True)
        self._special_pattern = re.compile(
            "(" + "|".join(map(re.escape, longest_first)) + ")" if longest_first else r"(\Z\A.)"
        )
        # What no special token can do without, and what may become that by more text.
        plain = self.added.keys() - self.special.keys()
        self._starts = sorted({_start(token, plain) for token in self.special})
        self._begun = tuple(
            {start[:size] for start in self._starts for size in range(1, len(start))}
        )
        self._bytes: dict[int, bytes] = {index: text.encode() for text, index in self.added.items()}

    @classmethod
    def from_bytes(cls, tokenizer_json: bytes, tokenizer_config: bytes = b"{}") -> "Tokenizer":
        """Load the two files of a Hugging Face tokenizer.

        Added tokens that only `tokenizer_config.json` lists (`added_tokens_decoder`) are added.
        Raises ArtifactError for files that cannot be read, that contradict each other, or that
        are not a byte-level BPE.
        """
        try:
            backend = tokenizers.Tokenizer.from_buffer(tokenizer_json)
        except ValueError as error:
            raise ArtifactError(f"tokenizer.json cannot be read: {error}") from None
        if not isinstance(backend.decoder, tokenizers.decoders.ByteLevel):
            raise ArtifactError(
                "tokenizer.json is not a byte-level tokenizer; no other is supported"
            )
        _add_missing(backend, _added_tokens(tokenizer_config))
        for index, token in backend.get_added_tokens_decoder().items():
            around = token.lstrip or token.rstrip or token.single_word
            if token.special and (around or len(token.content) < 2):
                raise ArtifactError(
                    f"tokenizer.json: special token {index} {token.content!r} is one character or"
                    " matches text around it (lstrip, rstrip, single_word), which is not supported"
                )
        return cls(backend)

    def encode(self, text: str, *, mark: str = "") -> list[int]:
        """Token ids of `text`, added tokens recognised, nothing put before or after.

        `mark`, if given, is a text that stands inside would-be special tokens to break them. It is
        removed before encoding, so those are encoded as the plain text that they show. Raises
        PromptError for text that is not valid Unicode.
        """
        ids: list[int] = []
        # With a capturing group, split gives plain text and special tokens in turn.
        for place, piece in enumerate(self._special_pattern.split(text)):
            if place % 2:
                ids.append(self.special[piece])
            elif piece:
                ids += self._encode_plain(piece.replace(mark, "") if mark else piece)
        return ids

    def breaks(self, text: str, mark: str) -> str:
        """`text` with `mark` put wherever a special token could begin, so that none is read there.

        Tokens cannot begin in `text` and end behind it either. Tags of thoughts and tools stay
        whole, since templates look for them. Unchanged if it holds no such place.
        """
        for start in self._starts:
            text = text.replace(start, start[:-1] + mark + start[-1])
        return text + mark if text.endswith(self._begun) else text

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one id stands for; those of its text for an added token.

        Raises GenerationError for an id outside the vocabulary.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._look_up(token_id)
        return known

    def _look_up(self, token_id: int) -> bytes:
        if not 0 <= token_id < self.addressable:
            raise GenerationError(
                f"token id {token_id} is outside the vocabulary 0..{self.addressable - 1}"
            )
        token = self._backend.id_to_token(token_id)
        return b"" if token is None else bytes(_BYTE_OF[letter] for letter in token)

    def _encode_plain(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError(
                f"the prompt holds the unpaired surrogate U+{ord(text[error.start]):04X};"
                " send whole characters"
            ) from None
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids


def _start(token: str, plain: Collection[str]) -> str:
    """The first characters of a special token that tell it from the plain added tokens.

    At least two, as `<|`; of `<tts_pad>` three, because of `<think>`. Two where none tell.
    """
    for size in range(2, len(token)):
        if not any(tag.startswith(token[:size]) for tag in plain):
            return token[:size]
    return token[:2]


def _byte_letters() -> dict[str, int]:
    """The printable stand-ins of byte values in a byte-level vocabulary, as GPT-2 defined them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF: Final = _byte_letters()


def _added_tokens(tokenizer_config: bytes) -> dict[int, tokenizers.AddedToken]:
    config = parse_json(tokenizer_config, _CONFIG_NAME, ArtifactError)
    try:
        entries = config.get("added_tokens_decoder", {})
        return {_token_id(index): _added_token(entry) for index, entry in entries.items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ArtifactError(f"{_CONFIG_NAME} cannot be read: {error!r}") from None


def _token_id(text: str) -> int:
    if not _ID_PATTERN.fullmatch(text):
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise ArtifactError(f"{_CONFIG_NAME}: added_tokens_decoder: {shown!r} is not a token id")
    return int(text)


def _added_token(entry: dict[str, Any]) -> tokenizers.AddedToken:
    flags = ("special", "lstrip", "rstrip", "single_word", "normalized")
    return tokenizers.AddedToken(
        entry["content"], **{flag: bool(entry.get(flag, False)) for flag in flags}
    )


def _add_missing(backend: tokenizers.Tokenizer, tokens: dict[int, tokenizers.AddedToken]) -> None:
    for index, token in sorted(tokens.items()):
        known = backend.id_to_token(index)
        if known is None:
            backend.add_tokens([token])
            known = token.content if backend.token_to_id(token.content) == index else None
        if known != token.content:
            raise ArtifactError(
                f"{_CONFIG_NAME} gives id {index} to {token.content!r}, which does not fit"
                f" tokenizer.json ({known!r} there)"
            )
