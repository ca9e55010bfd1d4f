"""Modules of the page in a real browser: Markdown, event streams, counters."""

import pytest
from playwright.sync_api import Page

from tests.server.page_server import ANSWER

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

# Runs a function of one of the page's modules, as the page itself has loaded it.
IN_MODULE = """async ([file, body, value]) => {
    const main = document.querySelector("script[type=module]").src;
    const module = await import(new URL(file, main));
    return await RUNS[body](module, value);
}"""
RUNS = """{
    html: (m, text) => {
        const box = document.createElement("div");
        new m.MarkdownView(box).update(text);
        return new XMLSerializer().serializeToString(box);
    },
    grown: (m, text) => {
        const box = document.createElement("div");
        const view = new m.MarkdownView(box);
        for (let end = 0; end <= text.length; end += 1) view.update(text.slice(0, end));
        return new XMLSerializer().serializeToString(box);
    },
    events: async (m, pieces) => {
        const bytes = pieces.map((piece) => Uint8Array.from(piece));
        const body = new ReadableStream({
            start(c) { bytes.forEach((b) => c.enqueue(b)); c.close(); },
        });
        const found = [];
        for await (const data of m.eventData(body)) found.push(data);
        return found;
    },
    growth: (m, [before, after]) => {
        const read = (text, time) => new m.Reading(time, m.parseMetrics(text));
        return m.growth(read(before, 0), read(after, 1000), "a_total", "b_total");
    },
}"""


def in_module(page: Page, file: str, body: str, value: object) -> object:
    return page.evaluate(IN_MODULE.replace("RUNS", RUNS), [f"./{file}", body, value])


def test_markdown_is_never_markup_and_streams_to_the_same(open_page) -> None:
    page = open_page().page
    hostile = "[a](javascript:alert(1)) ![b](data:text/html,x) <img src=x onerror=alert(1)>"
    html = str(in_module(page, "markdown.js", "html", hostile))
    assert "<a " not in html and "<img" not in html and "&lt;img" in html
    for text, wanted in (
        ("a **b** `c*d*` *e* ~~f~~ g_h_i", "<strong>b</strong> <code>c*d*</code> <em>e</em>"),
        ("see https://x.org/a. ok", ">https://x.org/a</a>. ok"),
        ("1. a\n   - b\n\n2. c", "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>"),
        ("> a\n> - b", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>"),
        ("3) a\n4) b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("~~~\n```\n~~~\nafter", "<code>```</code></pre></figure><p>after</p>"),
        ("```py\nopen", ">py</span>"),
        ("a\n\n---\n# b", "<hr /><h3>b</h3>"),
        ("* * *\n2 * 3 * 4", "<hr /><p>2 * 3 * 4</p>"),
    ):
        html = str(in_module(page, "markdown.js", "html", text))
        assert wanted in html, (text, html)
        assert in_module(page, "markdown.js", "grown", text) == html, text
    assert in_module(page, "markdown.js", "grown", ANSWER) == in_module(
        page, "markdown.js", "html", ANSWER
    )


def test_events_and_counters_are_read_right(open_page) -> None:
    page = open_page().page
    raw = ': hi\r\n\r\ndata: {"é\u2028": 1}\r\n\r\ndata:a\ndata: b\r\rdata: half'.encode()
    whole = in_module(page, "sse.js", "events", [list(raw)])
    assert whole == ['{"é\u2028": 1}', "a\nb"]
    single = in_module(page, "sse.js", "events", [[byte] for byte in raw])
    assert single == whole
    for before, after, grown in (
        ("a_total 5", "a_total 8", 3),
        ("a_total 5", "a_total 2", 2),  # the server was restarted
        ('b_total{model="x y"} 1', 'b_total{model="x y"} 4.5', 3.5),
        ("c_total 1", "c_total 2", None),
        # Of a cluster: the sum of its replicas; one that left or came is no work done meanwhile.
        ('a_total{r="x"} 5\na_total{r="y"} 7', 'a_total{r="x"} 8\na_total{r="y"} 9', 5),
        ('a_total{r="x"} 5\na_total{r="y"} 7', 'a_total{r="x"} 8', 3),
        ('a_total{r="x"} 5', 'a_total{r="x"} 6\na_total{r="y"} 100', 1),
    ):
        assert in_module(page, "metrics.js", "growth", [before, after]) == grown
