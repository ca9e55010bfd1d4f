"""Token bytes to text, piece by piece, never half a character."""

import codecs


class Detokenizer:
    """UTF-8 decoding state of one sequence.

    The bytes of an unfinished character are held back. Bytes that cannot be part of a character
    become U+FFFD, and what follows them is kept. The joined text equals that of
    `bytes.decode("utf-8", errors="replace")` on all bytes at once.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_bytes: bytes) -> str:
        """The text that these bytes complete."""
        return self._decoder.decode(token_bytes)

    @property
    def is_inside_character(self) -> bool:
        """Whether bytes are held back."""
        return bool(self._decoder.getstate()[0])

    def flush(self) -> str:
        """The held bytes as U+FFFD; the sequence has ended."""
        return self._decoder.decode(b"", final=True)
