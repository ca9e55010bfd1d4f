"""How a replica knows its gateway: one secret, and the number of the key that the client sent."""

import hmac
from collections.abc import Mapping
from typing import Final

from ninfer.server.keys import Key, KeyLimits, KeyRing

OWNER: Final = "x-ninfer-owner"
_DIGITS: Final = 6


class GatewayKeys(KeyRing):
    """Takes requests of the gateway only, which has applied the limits of keys already."""

    def __init__(self, secret: str) -> None:
        super().__init__({secret: KeyLimits()})
        self._secret: Final = secret.encode()

    def find(self, headers: Mapping[str, str]) -> Key | None:
        """The client's key by its number; None for requests that are not of the gateway."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        offered = token.strip().encode("utf-8", "surrogateescape")
        owner = headers.get(OWNER, "0")
        if scheme.lower() != "bearer" or not hmac.compare_digest(offered, self._secret):
            return None
        if not owner.isdecimal() or len(owner) > _DIGITS:
            return None
        return Key(int(owner), KeyLimits())


def gateway_headers(secret: str, owner: int) -> dict[str, str]:
    """What the gateway sends to be known."""
    return {"authorization": f"Bearer {secret}", OWNER: str(owner)}
