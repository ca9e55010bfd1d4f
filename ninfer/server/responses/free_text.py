"""The text for a tool that takes any text, out of the JSON that its arguments are sent as."""

import json
import re
from typing import Final

_HEAD: Final = re.compile(r'\{"input":"')
# Characters of a JSON string up to one that may be unfinished: an escape, or half of a pair.
_WHOLE: Final = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)


class FreeText:
    """Takes `{"input":"..."}` in pieces and gives its text as it grows.

    Of arguments in any other form it gives nothing; `sent` is what it gave.
    """

    def __init__(self) -> None:
        self._held = ""
        self._begun = False
        self._ended = False
        self.sent = ""

    def feed(self, piece: str) -> str:
        """The text that is now certain."""
        self._held += piece
        if self._ended:
            return ""
        if not self._begun:
            head = _HEAD.match(self._held)
            if head is None:
                return ""
            self._begun = True
            self._held = self._held[head.end() :]
        return self._text()

    def _text(self) -> str:
        """Up to the closing quote, without what may be unfinished."""
        found = _WHOLE.match(self._held)
        assert found is not None
        whole, self._held = found.group(), self._held[found.end() :]
        self._ended = self._held.startswith('"')
        text = json.loads(f'"{whole}"', strict=False)
        assert isinstance(text, str)
        self.sent += text
        return text
