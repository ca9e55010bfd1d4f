"""The page's files over HTTP: caching, policy, and that nothing comes from elsewhere."""

import re
from collections.abc import Iterator
from importlib import resources

import httpx
import pytest

from ninfer.server.page_routes import POLICY
from tests.server.page_server import served


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        served() as server,
        httpx.Client(base_url=server.root, trust_env=False, timeout=60) as http,
    ):
        yield http


def assets(client: httpx.Client) -> list[str]:
    """Every file that the page loads, those that scripts import included."""
    index = client.get("/").text
    found = re.findall(r'(?:href|src)="(page/[^"]+)"', index)
    seen: list[str] = []
    while found:
        path = found.pop()
        if path not in seen:
            seen.append(path)
            folder = path.rpartition("/")[0]
            text = client.get("/" + path).text if path.endswith(".js") else ""
            found += [f"{folder}/{name}" for name in re.findall(r'from "\./([^"]+)"', text)]
    return seen


def test_the_page_is_asked_again_and_its_files_are_kept(client: httpx.Client) -> None:
    index = client.get("/")
    assert index.status_code == 200 and index.headers["cache-control"] == "no-cache"
    tag = index.headers["etag"]
    again = client.get("/", headers={"if-none-match": f'"x", W/{tag}'})
    assert again.status_code == 304 and again.content == b"" and again.headers["etag"] == tag
    assert client.get("/", headers={"if-none-match": '"other"'}).status_code == 200
    paths = assets(client)
    assert len(paths) > 10 and all(path.startswith(f"page/{tag[1:-1]}/") for path in paths)
    for path in paths:
        answer = client.get("/" + path)
        assert answer.status_code == 200, path
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
        assert answer.headers["content-type"].startswith(kind[path.rpartition(".")[2]])


def test_every_file_of_the_folder_is_used(client: httpx.Client) -> None:
    folder = resources.files("ninfer.server").joinpath("page")
    names = {path.rpartition("/")[2] for path in assets(client)}
    assert {file.name for file in folder.iterdir()} == {"index.html", *names}


def test_every_answer_carries_the_policy(client: httpx.Client) -> None:
    for path in ("/", "/favicon.ico", "/" + assets(client)[0]):
        headers = client.get(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in POLICY and "http" not in POLICY and "*" not in POLICY


def test_probes_and_wrong_methods(client: httpx.Client) -> None:
    head = client.head("/")
    assert head.status_code == 200 and head.content == b""
    assert client.post("/").status_code == 405


def test_only_the_named_files_exist(client: httpx.Client) -> None:
    digest = client.get("/").headers["etag"][1:-1]
    for path in (
        "page/0000000000000000/main.js",
        f"page/{digest}/index.html",
        f"page/{digest}/none.js",
        f"page/{digest}/..%2f..%2fpage_routes.py",
        f"page/{digest}/%2e%2e/page_routes.py",
        f"page/{digest}/",
    ):
        assert client.get("/" + path).status_code == 404, path


def test_nothing_comes_from_elsewhere_and_nothing_is_inline(client: httpx.Client) -> None:
    texts = {path: client.get("/" + path).text for path in ["", *assets(client)]}
    for path, text in texts.items():
        # The name space of SVG is a name, not an address.
        addresses = re.findall(r"https?://[^\s\"'`)\\]+", text.replace("http://www.w3.org", ""))
        assert not [found for found in addresses if re.match(r"https?://\w", found)], path
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, (path, word)
    index = texts[""]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", index)


def test_the_page_can_be_used_without_seeing_it(client: httpx.Client) -> None:
    index = client.get("/").text
    assert '<html lang="en">' in index and 'name="viewport"' in index
    for tag, attributes in re.findall(
        r"<(button|input|textarea|select|canvas|img)\b([^>]*)>", index
    ):
        inner = index[index.index(attributes) :].split(f"</{tag}>")[0]
        label = "aria-label=" in attributes or re.search(r">\s*\w", inner) or "name=" in attributes
        labelled = re.search(r'id="(\w+)"', attributes)
        named = labelled and f'for="{labelled[1]}"' in index
        assert label or named or "aria-hidden" in attributes, (tag, attributes)
    identifiers = re.findall(r'\sid="([^"]+)"', index)
    assert len(identifiers) == len(set(identifiers))
    for name in re.findall(r'(?:aria-controls|aria-labelledby|for)="([^"]+)"', index):
        assert name in identifiers
