"""Downloads over http and https that end in time, stay small and reach no private address."""

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from ninfer.errors import PromptError
from ninfer.version import VERSION

_MOVED: Final = (301, 302, 303, 307, 308)
_HEADERS: Final = {
    "User-Agent": f"ninfer/{VERSION}",
    "Accept": "image/*, video/*, */*;q=0.5",
    "Accept-Encoding": "identity",
}
# IPv6 ranges that lead to IPv4 addresses: translation (RFC 6052, 8215), 6to4 and Teredo.
_TUNNELS: Final = tuple(
    map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
)


@dataclass(frozen=True, slots=True)
class DownloadRules:
    """Bounds of one download. Proxy settings of the environment are not used."""

    connect_seconds: float = 5.0
    total_seconds: float = 60.0
    redirects: int = 3
    private_addresses: bool = False  # allow hosts inside this machine's own networks


def download(url: str, rules: DownloadRules, max_bytes: int, place: str) -> bytes:
    """The body of `url`, redirects followed.

    Raises PromptError naming `place` for anything but a complete answer of at most `max_bytes`
    bytes from a public address in time.
    """
    deadline = time.monotonic() + rules.total_seconds
    for _ in range(rules.redirects + 1):
        answer = _Fetch(url, rules, deadline, place).run(max_bytes)
        if isinstance(answer, bytes):
            return answer
        url = urljoin(url, answer)
    raise PromptError(f"{place}: more than {rules.redirects} redirects, the last to {url!r}")


class _Fetch:
    """One request to one host."""

    def __init__(self, url: str, rules: DownloadRules, deadline: float, place: str) -> None:
        self._url = url
        self._rules = rules
        self._deadline = deadline
        self._place = place

    def run(self, max_bytes: int) -> bytes | str:
        """The body, or the address that the answer points to."""
        try:
            parts = urlsplit(self._url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
                raise self._error("not a plain http or https address")
            with self._connected(parts, port) as sock:
                return self._exchange(sock, parts, port, max_bytes)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._left() <= 0:
                raise self._error(f"not done after {self._rules.total_seconds:g} s") from None
            raise self._error(str(error) or type(error).__name__) from None

    def _exchange(
        self, sock: socket.socket, parts: SplitResult, port: int, max_bytes: int
    ) -> bytes | str:
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, port)
        connection.sock = sock
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        default = port == (443 if parts.scheme == "https" else 80)
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        host = name if default else f"{name}:{port}"
        connection.request("GET", target, headers={**_HEADERS, "Host": host})
        response = connection.getresponse()
        place_elsewhere = response.getheader("Location")
        if response.status in _MOVED and place_elsewhere:
            return place_elsewhere
        if response.status != 200:
            raise self._error(f"the server answered {response.status} {response.reason}".rstrip())
        if response.getheader("Content-Encoding", "identity") != "identity":
            raise self._error("the server sent a compressed answer, which was not asked for")
        return self._body(response, max_bytes)

    def _body(self, response: http.client.HTTPResponse, max_bytes: int) -> bytes:
        announced = response.length
        if (announced or 0) > max_bytes:
            raise self._error(f"{announced:,} bytes; this request may bring {max_bytes:,} more")
        body = response.read(max_bytes + 1)
        if len(body) > max_bytes:
            raise self._error(f"more than the {max_bytes:,} bytes that this request may bring")
        if self._left() <= 0 or (announced is not None and len(body) < announced):
            raise OSError(f"the connection ended after {len(body):,} bytes")
        return body

    @contextmanager
    def _connected(self, parts: SplitResult, port: int) -> Iterator[socket.socket]:
        """A socket to a checked address, which is shut when the time is over."""
        assert parts.hostname is not None
        sock = self._connect(parts.hostname, port)
        # A server that sends a byte now and then would pass any timeout of single reads. The
        # second handle stays valid while TLS owns the first.
        spare = sock.dup()
        watch = threading.Timer(max(self._left(), 0), _shut, (spare,))
        watch.daemon = True
        watch.start()
        try:
            if parts.scheme == "https":
                context = ssl.create_default_context()
                sock = context.wrap_socket(sock, server_hostname=parts.hostname)
            yield sock
        finally:
            watch.cancel()
            sock.close()
            spare.close()

    def _connect(self, host: str, port: int) -> socket.socket:
        # The addresses that were checked are the ones connected to; asking again by name could
        # give others.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not self._rules.private_addresses:
            for address in addresses:
                if not is_public(address):
                    raise self._error(f"{host} is at {address}, which is not a public address")
        error: OSError = OSError(f"{host} has no address")
        for address in addresses:
            seconds = max(min(self._rules.connect_seconds, self._left()), 0.001)
            try:
                sock = socket.create_connection((address, port), seconds)
            except OSError as refused:
                error = refused
            else:
                sock.settimeout(max(self._left(), 0.001))
                return sock
        raise error

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _error(self, what: str) -> PromptError:
        url = self._url if len(self._url) <= 80 else self._url[:77] + "..."
        return PromptError(f"{self._place}: {url!r} cannot be fetched: {what}")


def is_public(address: str) -> bool:
    """Whether an IP address is reachable from anywhere, itself and not by a tunnel to another."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(str(ip.ipv4_mapped))
        if any(ip in network for network in _TUNNELS):
            return False
    return ip.is_global and not ip.is_multicast


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It was closed a moment ago, at the end of the download.
        return
