"""Server-sent events: from pieces of bytes to the data of each event."""

from collections.abc import Iterable, Iterator


def event_data(pieces: Iterable[bytes]) -> Iterator[str]:
    """The data of each event, however the bytes are cut; comments and other fields are skipped.

    Lines end with LF, CR or CRLF only: JSON may hold other line separators unescaped. Bytes that
    are not UTF-8 become replacement characters. An event that the end of the stream cuts off is
    dropped.
    """
    data: list[str] = []
    for line in _lines(pieces):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" ").decode("utf-8", "replace"))


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Complete lines without their ends. A CR that ends a piece waits for a possible LF."""
    rest = b""
    for piece in pieces:
        rest += piece
        whole = rest[:-1] if rest.endswith(b"\r") else rest
        held = rest[len(whole) :]
        *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest += held
        yield from lines
    if rest.endswith(b"\r"):
        yield rest[:-1]
