"""Sources of media: data URIs, files, and downloads from a local server that misbehaves."""

import base64
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

from ninfer.errors import PromptError
from ninfer.frontend.media.download import DownloadRules, is_public
from ninfer.frontend.media.fetch import SourceRules, read_source

BODY = bytes(range(256)) * 8
LOCAL = SourceRules(local_files=True)
LOOPBACK = SourceRules(
    downloads=DownloadRules(connect_seconds=60, total_seconds=120, private_addresses=True)
)
HURRIED = SourceRules(
    downloads=DownloadRules(connect_seconds=60, total_seconds=1, private_addresses=True)
)


def read(source: str, rules: SourceRules = LOOPBACK, max_bytes: int = 10_000) -> bytes:
    return read_source(source, rules, max_bytes, "part")


@pytest.mark.parametrize(
    "source",
    [
        "data:image/png;base64," + base64.b64encode(BODY).decode(),
        "DATA:;BASE64," + base64.b64encode(BODY).decode().rstrip("="),
        "data:image/png;name=x;base64," + quote(base64.b64encode(BODY).decode()),
        "data:;base64," + base64.encodebytes(BODY).decode(),
        "data:application/octet-stream," + quote(BODY),
    ],
)
def test_data_uris(source: str) -> None:
    assert read(source, SourceRules(downloads=None)) == BODY


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("data:image/png;base64", "no comma"),
        ("data:image/png;base64,a*b=", "not valid base64"),
        ("data:image/png;base64,abcde", "not valid base64"),
        ("data:image/png;base64," + "A" * 20_000, "more than the 10,000 bytes"),
        ("data:," + "a" * 10_001, "more than the 10,000 bytes"),
        ("ftp://host/a.png", "none of http, https, file and data"),
        ("http://[::1/a.png", "not a URL"),
    ],
)
def test_bad_sources_are_named(source: str, message: str) -> None:
    with pytest.raises(PromptError, match=message) as caught:
        read(source, LOCAL)
    assert str(caught.value).startswith("part") and len(str(caught.value)) < 250


def test_files_are_read_only_when_allowed(tmp_path) -> None:
    path = tmp_path / "a picture.png"
    path.write_bytes(BODY)
    for source in (str(path), path.as_uri()):
        assert read(source, LOCAL) == BODY
        with pytest.raises(PromptError, match="requests must not read"):
            read(source)
    with pytest.raises(PromptError, match="more than the 9 bytes"):
        read(str(path), LOCAL, 9)


def test_files_that_are_none(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("missing", "No such file"),
        ("", "directory|regular"),
        ("pipe", "regular"),
        ("nul\0", "null"),
    ):
        with pytest.raises(PromptError, match=message):
            read(f"{tmp_path}/{name}", LOCAL)


class Pages(BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        getattr(self, self.path.strip("/").split("?")[0].split("/")[0])()

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _head(self, status: int = 200, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def good(self) -> None:
        self._head(Content_Length=len(BODY))
        self.wfile.write(BODY)

    def endless(self) -> None:
        self._head()
        self.wfile.write(BODY * 100)

    def announced(self) -> None:
        self._head(Content_Length=10**9)

    def short(self) -> None:
        self._head(Content_Length=len(BODY) + 1)
        self.wfile.write(BODY)

    def packed(self) -> None:
        self._head(Content_Encoding="gzip", Content_Length=4)
        self.wfile.write(b"abcd")

    def lost(self) -> None:
        self._head(404, Content_Length=0)

    def hop(self) -> None:
        left = int(self.path.rpartition("/")[2])
        self._head(302, Location=f"/hop/{left - 1}" if left > 1 else "/good")

    def away(self) -> None:
        self._head(301, Location="file:///etc/hostname")

    def drip(self) -> None:
        self._head(Content_Length=len(BODY))
        for byte in BODY:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.05)

    def silent(self) -> None:
        time.sleep(120)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hangs up is what these tests are about."""

    with Quiet(("127.0.0.1", 0), Pages) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{pages.server_port}"
        pages.shutdown()


@pytest.mark.parametrize("path", ["/good", "/good?a=b", "/hop/3"])
def test_downloads(server: str, path: str) -> None:
    assert read(server + path) == BODY


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/hop/4", "more than 3 redirects"),
        ("/away", "not a plain http or https address"),
        ("/lost", "the server answered 404 Not Found"),
        ("/endless", "more than the 10,000 bytes"),
        ("/announced", "1,000,000,000 bytes; this request may bring 10,000 more"),
        ("/short", "ended after 2,048 bytes"),
        ("/packed", "compressed"),
    ],
)
def test_bad_answers_are_named(server: str, path: str, message: str) -> None:
    with pytest.raises(PromptError, match=f"part: .*{message}"):
        read(server + path)


@pytest.mark.parametrize("path", ["/drip", "/silent"])
def test_the_time_of_a_download_is_bounded(server: str, path: str) -> None:
    started = time.monotonic()
    with pytest.raises(PromptError, match="not done after 1 s"):
        read(server + path, HURRIED)
    # Either page would take more than a minute and a half.
    assert time.monotonic() - started < 60


def test_private_addresses_are_refused_before_a_connection(server: str) -> None:
    port = server.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433"):
        with pytest.raises(PromptError, match="not a public address"):
            read(f"http://{host}:{port}/good", SourceRules())


def test_the_checked_address_is_the_one_connected_to(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that changes its address between check and connection leads nowhere else."""
    port = int(server.rpartition(":")[2])
    asked: list[str] = []

    def resolve(host: str, at: int, **_: object) -> list[object]:
        asked.append(host)
        address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, at))]

    connected: list[object] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(PromptError, match="refused"):
        read(f"http://example.test:{port}/good", SourceRules())
    assert asked == ["example.test"] and connected == [("93.184.216.34", port)]


def test_a_port_nobody_listens_on_and_downloads_switched_off() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        with pytest.raises(PromptError, match=r"cannot be fetched: .*refused"):
            read(url)
    with pytest.raises(PromptError, match="switched off"):
        read(url, SourceRules(downloads=None))
    with pytest.raises(PromptError, match="not a plain"):
        read("http://user:word@127.0.0.1/")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("10.0.0.1", False),
        ("172.16.3.4", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("ff02::1", False),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    assert is_public(address) is public
