"""A browser on the page: how it is started, and what is watched while it is open."""

import os
import shutil

import pytest
from playwright.sync_api import Page, expect

# A machine may stall for longer than the 5 s that Playwright grants.
expect.set_options(timeout=60_000)

# A browser in a closed network, as root in a container too: without its own calls home.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A name of this machine that does not count as local.
    "--host-resolver-rules=MAP ninfer.test 127.0.0.1",
)


def chromium() -> str:
    """The browser of the system, or the one that CHROMIUM names."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.fail("no Chromium: apt-get install chromium, or set CHROMIUM to its path")
    return found


class Visit:
    """A page that has been opened, and everything that went wrong on it."""

    def __init__(self, page: Page, root: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda line: self._line(line.type, line.text))
        page.on("request", lambda request: self._request(request.url, root))
        page.goto(root)
        expect(page.locator("#state-text")).not_to_have_text("connecting")

    def _line(self, kind: str, text: str) -> None:
        # The browser itself notes every answer that is no 2xx.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.problems.append(text)

    def _request(self, url: str, root: str) -> None:
        if not url.startswith((root, "data:", "blob:")):
            self.foreign.append(url)

    def ask(self, text: str) -> None:
        self.page.fill("#question", text)
        self.page.keyboard.press("Enter")

    def answer(self) -> None:
        expect(self.page.locator("#stop")).to_be_hidden()
