"""TextSide: what callers of an engine may ask of its text besides generating; for any thread."""

from collections.abc import Sequence
from typing import Final

from ninfer.errors import PromptError
from ninfer.frontend import Frontend
from ninfer.request import PreparedPrompt


class TextSide:
    """Tokens and texts of one model, and what its chat template offers."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend: Final = frontend
        self._tokenizer: Final = frontend.tokenizer

    @property
    def addressable(self) -> int:
        """The largest token id plus one."""
        return self._tokenizer.addressable

    @property
    def efforts(self) -> tuple[str, ...]:
        """The reasoning efforts that the chat template offers, weakest first."""
        return self._frontend.reasoning_efforts

    @property
    def offers_preserving(self) -> bool:
        """Whether the chat template can be told to keep or drop earlier thoughts."""
        return self._frontend.template.reads("preserve_thinking")

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, special tokens recognised. Raises PromptError for broken text."""
        return self._tokenizer.encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one id. Raises GenerationError outside 0..addressable - 1."""
        return self._tokenizer.token_bytes(token_id)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, with U+FFFD for what is no character. Raises as `token_bytes`."""
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")

    def added_id(self, text: str) -> int | None:
        """The id of an added token, such as a tag; None if the tokenizer has none of that text."""
        return self._tokenizer.added.get(text)

    def prompt_of_text(self, text: str) -> PreparedPrompt:
        """A prompt without turns: this text, to be continued. Raises as `encode`."""
        return PreparedPrompt(text, tuple(self.encode(text)), starts_in_reasoning=False)

    def prompt_of_ids(self, token_ids: Sequence[int]) -> PreparedPrompt:
        """A prompt of these ids. Raises PromptError naming an id that the model does not have."""
        for place, token_id in enumerate(token_ids):
            if not 0 <= token_id < self.addressable:
                raise PromptError(
                    f"prompt token {place} is {token_id}; the model's ids are "
                    f"0..{self.addressable - 1}"
                )
        return PreparedPrompt(self.decode(token_ids), tuple(token_ids), starts_in_reasoning=False)
