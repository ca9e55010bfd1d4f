"""The page in a real browser: thinking, images, a tool call, failures; a moving dashboard."""

import base64
import json
import re
import struct
import zlib
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.server.page_server import ANSWER, PageServer

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def test_an_answer_streams_with_its_thinking_folded(open_page, server: PageServer) -> None:
    visit = open_page()
    page = visit.page
    expect(page.locator("#state-text")).to_have_text("qwen3.6-27b")
    server.delay = 0.03
    visit.ask("Give me a short plan")
    thinking = page.locator("details.thinking")
    expect(thinking).to_have_attribute("open", "")  # while there is nothing else to read
    expect(page.locator(".answer")).to_have_attribute("aria-busy", "true")
    expect(page.locator(".answer > .prose h3")).to_have_text("A short plan")  # before the end
    expect(page.locator("#stop")).to_be_visible()
    visit.answer()
    expect(thinking).not_to_have_attribute("open", "")
    expect(thinking.locator("summary")).to_have_text(re.compile(r"Thought for \d+\.\d s"))
    prose = page.locator(".answer > .prose")
    assert prose.locator("ol > li").count() == 2 and prose.locator("ol ul > li").count() == 2
    expect(prose.locator("td.end").first).to_have_text("1,024")
    expect(prose.locator("pre code")).to_have_text('for token in answer:\n    print(token, end="")')
    expect(prose.locator("p").last).to_contain_text("<script>alert(1)</script>")
    assert page.locator(".answer script").count() == 0
    expect(prose.locator("a")).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(page.locator(".foot")).to_contain_text("1200 tokens read, 1024 of them from the cache")
    expect(page.locator("#said")).to_have_text("The answer is complete")
    thinking.locator("summary").click()
    expect(thinking.locator("strong")).to_have_text("short")
    visit.ask("And now?")
    visit.answer()
    messages = server.requests[1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == ANSWER and "reasoning_content" in messages[1]


def picture() -> bytes:
    """A small red PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + b"\xd0\x20\x20" * 32 for _ in range(24))
    head = struct.pack(">IIBBBBB", 32, 24, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def test_images_are_attached_and_pasted(open_page, server: PageServer, tmp_path: Path) -> None:
    visit = open_page()
    page = visit.page
    file = tmp_path / "red.png"
    file.write_bytes(picture())
    page.set_input_files("#files", [file, file])
    expect(page.locator("#attached li")).to_have_count(2)
    page.get_by_label("Remove image 1").click()
    expect(page.locator("#attached li")).to_have_count(1)
    encoded = base64.b64encode(picture()).decode()
    page.evaluate(
        """(text) => {
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            const data = new DataTransfer();
            data.items.add(new File([bytes], "p.png", { type: "image/png" }));
            document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
        }""",
        encoded,
    )
    expect(page.locator("#attached li")).to_have_count(2)
    (tmp_path / "x.txt").write_text("no image")
    page.set_input_files("#files", tmp_path / "x.txt")
    expect(page.locator("#problem")).to_have_text("x.txt: no PNG, JPEG, WebP or GIF image")
    visit.ask("What is it?")
    expect(page.locator(".question img")).to_have_count(2)
    visit.answer()
    expect(page.locator(".answer > .prose")).to_have_text("I see 2 image(s).")
    *images, text = server.requests[0]["messages"][0]["content"]
    assert [part["image_url"]["url"] for part in images] == [f"data:image/png;base64,{encoded}"] * 2
    assert text == {"type": "text", "text": "What is it?"}
    width = page.locator(".question img").first.evaluate("(image) => image.naturalWidth")
    assert width == 32  # the policy lets it through


def test_a_call_is_shown_and_answered(open_page, server: PageServer) -> None:
    visit = open_page()
    page = visit.page
    page.click("#settings-open")
    page.fill("[name=tools]", '{"no": "array"}')
    page.click("#settings-ok")
    expect(page.locator("#settings-problem")).to_have_text("Tools: must be an array")
    page.fill("[name=tools]", json.dumps(TOOLS))
    page.fill("[name=temperature]", "0.5")
    page.uncheck("[name=thinking]")
    page.click("#settings-ok")
    visit.ask("Weather?")
    visit.answer()
    expect(page.locator(".call-name")).to_have_text("weather")
    expect(page.locator(".call pre")).to_have_text('{\n  "city": "Zürich",\n  "days": 2\n}')
    page.fill(".call textarea", "sunny")
    page.get_by_role("button", name="Send results").click()
    expect(page.locator(".answer").nth(1)).to_contain_text("The tool said: sunny")
    visit.answer()
    first, second = server.requests
    assert first["tools"] == TOOLS and first["temperature"] == 0.5
    assert first["chat_template_kwargs"] == {"enable_thinking": False}
    call, result = second["messages"][-2:]
    assert call["tool_calls"][0]["function"]["name"] == "weather"
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}


def ink(page: Page, number: int) -> str:
    """A digest of what a canvas shows."""
    return page.evaluate("(i) => document.querySelectorAll('canvas')[i].toDataURL()", number)


def test_the_dashboard_moves(open_page) -> None:
    page = open_page().page
    cards = page.locator(".card:visible")
    expect(cards).to_have_count(8)
    expect(page.locator(".card .value").nth(0)).to_have_text(re.compile(r"^1[5-9]\d$|^2\d\d$"))
    expect(page.locator(".card .value").nth(1)).to_have_text("62 %")
    before = [ink(page, number) for number in range(7)]
    page.wait_for_timeout(2500)
    after = [ink(page, number) for number in range(7)]
    moved = [number for number in range(7) if before[number] != after[number]]
    assert {0, 1, 3, 4, 5} <= set(moved)  # rates, queue, pages and hits; the others are totals
    hints = " ".join(page.locator(".hint").all_inner_texts())
    assert "of 1,024 pages" in hints and "6 of 16 state slots" in hints and "waiting" in hints
    assert "11 of 12 keep their form" in hints and re.search(r"\d usable, \d+ loop, \d", hints)
    expect(page.locator(".card .value").nth(7)).to_have_text(re.compile("^(89|90) %$"))
    labels = page.locator("canvas").evaluate_all("(all) => all.map((c) => c.ariaLabel)")
    assert all(labels) and "place 1: 83 %, place 2: 61 %, place 3: 42 %" in labels[2]


def test_the_dashboard_of_a_cluster_shows_its_replicas(open_page, server: PageServer) -> None:
    server.more_metrics = (
        'ninfer_cluster_replicas{serves="yes"} 2\nninfer_cluster_replicas{serves="no"} 1\n'
        'ninfer_cluster_requests{replica="a7k2"} 3\nninfer_cluster_requests{replica="zz91"} 0\n'
        'ninfer_requests_running{replica="zz91"} 5\n'
    )
    visit = open_page()
    card = visit.page.locator("figure", has=visit.page.get_by_role("heading", name="Replicas"))
    expect(card.locator("output")).to_have_text("2 of 3 serve")
    expect(card.locator(".hint")).to_have_text("requests under way, a7k2: 3, zz91: 0")
    server.more_metrics = ""
    expect(card).to_be_hidden()


def test_failures_are_told_and_the_next_question_works(open_page, server: PageServer) -> None:
    visit = open_page()
    page = visit.page
    visit.ask("break")
    visit.answer()
    expect(page.locator(".foot").nth(0)).to_have_text("The connection ended before the answer did.")
    visit.ask("fail")
    visit.answer()
    expect(page.locator(".foot").nth(1)).to_have_text("the engine stalled")
    page.get_by_role("button", name="Again").nth(1).click()
    visit.answer()
    assert server.requests[1] == server.requests[2]
    server.down = True
    expect(page.locator("#state-text")).to_have_text("not ready")
    server.down = False
    expect(page.locator("#state-text")).to_have_text("qwen3.6-27b")
    visit.ask("ok")
    visit.answer()
    expect(page.locator(".answer").last).to_contain_text("A short plan")


def test_escape_stops_and_the_server_knows(open_page, server: PageServer) -> None:
    visit = open_page()
    visit.ask("endless")
    expect(visit.page.locator(".answer > .prose")).to_contain_text("word20 ")
    visit.page.keyboard.press("Escape")
    visit.answer()
    expect(visit.page.locator(".foot")).to_have_text("stopped")
    assert server.cancelled.wait(60)


def test_a_key_is_asked_for_and_kept_with_the_tab(open_page, server: PageServer) -> None:
    server.key = "s3cret"
    visit = open_page()
    page = visit.page
    expect(page.locator("#settings-problem")).to_have_text("This server wants an API key.")
    expect(page.locator("#board-note")).to_have_text("The numbers need the API key.")
    page.fill("[name=key]", "s3cret")
    page.keyboard.press("Enter")
    expect(page.locator("#state-text")).to_have_text("qwen3.6-27b")
    expect(page.locator("#board-note")).to_be_hidden()
    page.reload()
    expect(page.locator("#state-text")).to_have_text("qwen3.6-27b")
    assert page.evaluate("JSON.stringify(localStorage).includes('s3cret')") is False


def test_by_keyboard_on_a_phone_in_the_dark(open_page) -> None:
    visit = open_page(viewport={"width": 360, "height": 640}, color_scheme="dark")
    page = visit.page
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")  # light
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    expect(page.locator("#board")).to_be_hidden()
    page.locator("#tab-chat").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-board")).to_be_focused()
    expect(page.locator("#board")).to_be_visible()
    page.keyboard.press("Alt+Digit1")
    page.keyboard.press("/")
    expect(page.locator("#question")).to_be_focused()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    visit.answer()
    expect(page.locator(".question .said")).to_have_text("one\ntwo")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360  # nothing sticks out at the side
    page.keyboard.press("Alt+KeyN")
    expect(page.locator(".turn")).to_have_count(0)
    with page.expect_download() as saved:
        page.keyboard.press("Alt+KeyS")
    assert json.loads(saved.value.path().read_text()) == {"messages": []}


def test_from_another_machine_without_encryption(open_page, server: PageServer) -> None:
    server.root = server.root.replace("127.0.0.1", "ninfer.test")
    visit = open_page()
    page = visit.page
    assert page.evaluate("window.isSecureContext") is False
    visit.ask("plan")
    visit.answer()
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.locator("#question").press("Control+v")
    expect(page.locator("#question")).to_have_value(
        'for token in answer:\n    print(token, end="")'
    )
    page.click("#settings-open")
    page.fill("[name=tools]", json.dumps(TOOLS))
    page.click("#settings-ok")
    visit.ask("Weather?")
    visit.answer()
    expect(page.locator(".call textarea")).to_be_focused()


def test_editing_takes_turns_back(open_page, server: PageServer) -> None:
    visit = open_page()
    page = visit.page
    for text in ("first", "second"):
        visit.ask(text)
        visit.answer()
    page.locator(".question").nth(0).hover()
    page.get_by_role("button", name="Edit").nth(0).click()
    expect(page.locator(".turn")).to_have_count(0)
    expect(page.locator("#question")).to_have_value("first")
    visit.ask("first, better")
    visit.answer()
    assert [m["content"] for m in server.requests[-1]["messages"]] == ["first, better"]
