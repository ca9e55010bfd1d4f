"""Files of stored responses: JSON lines that grow while a campaign runs, and are read again."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from ninfer.audit.record import StoredResponse, response_of
from ninfer.errors import UsageError
from ninfer.json_text import parse_json


class ResponseFile:
    """A file of responses that grows. As a context it is closed at the end.

    `responses` holds what the file has by key; of two lines on one key the later counts.
    """

    def __init__(self, path: Path) -> None:
        """Open or create. Raises UsageError for a file that holds something else."""
        self.path: Final = path
        whole = whole_lines(read_file(path)) if path.exists() else ""
        found = parse_responses(whole, str(path))
        self.responses: Final = {one.key: one for one in found}
        try:
            self._file: IO[str] = path.open("a", encoding="utf-8", newline="\n")
            # A line that was cut by a sudden end goes, so that the next one is whole.
            self._file.truncate(len(whole.encode()))
        except OSError as error:
            raise UsageError(f"--output {path}: {error.strerror}") from error

    def add(self, response: StoredResponse) -> None:
        """Write a response; it is in the file when the call returns."""
        self.responses[response.key] = response
        self._file.write(response.to_json() + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def parse_responses(text: str, where: str) -> Iterator[StoredResponse]:
    """The responses of JSON lines. Raises UsageError naming `where` and the line."""
    # Not splitlines: a JSON text may hold other line separators as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{where}:{number}"
            yield response_of(parse_json(line, place, UsageError), place)


def read_file(path: Path) -> str:
    """A UTF-8 file. Raises UsageError naming it."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None


def whole_lines(text: str) -> str:
    """The text up to its last line end."""
    return text[: text.rfind("\n") + 1]
