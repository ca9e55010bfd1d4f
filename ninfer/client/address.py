"""Addresses of servers as people type them."""

import re
from typing import Final
from urllib.parse import urlsplit

from ninfer.errors import UsageError

_HOST_PORT: Final = re.compile(
    r"(localhost|[\w.-]+:[0-9]{1,5}|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?)(/.*)?"
)


def is_address(text: str) -> bool:
    """Whether a text means a server rather than a file: a URL, `localhost`, or HOST:PORT."""
    return "://" in text or _HOST_PORT.fullmatch(text) is not None


def root_of(text: str) -> str:
    """The server's address without a final slash or `/v1`; http:// when no scheme is given.

    Raises UsageError for text that is no http or https address.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, a port that is no number or too large
        raise _unusable(text) from None
    if parts.username is not None or parts.password is not None:
        raise UsageError("URL: holds a user name or password; give the key by its variable")
    if not good or parts.query or parts.fragment or any(c.isspace() for c in text):
        raise _unusable(text)
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _unusable(text: str) -> UsageError:
    return UsageError(f"URL {text!r}: must be an address such as http://127.0.0.1:8080")
