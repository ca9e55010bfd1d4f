"""Sizes of memory as people write them."""

import re
from typing import Final

from ninfer.errors import UsageError

_UNITS: Final = {"b": 1, "mb": 10**6, "gb": 10**9, "mib": 1 << 20, "gib": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(b|mb|gb|mib|gib)?", re.IGNORECASE)


def size_of(flag: str, text: str) -> int:
    """Bytes of a size such as 24GiB, 1.5GB, 512MiB or 0. Raises UsageError naming the option."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{flag} {text!r}: must be a size such as 24GiB, 1.5GB or 512MiB")
    number, unit = match.groups()
    return int(float(number) * _UNITS[(unit or "b").lower()])
