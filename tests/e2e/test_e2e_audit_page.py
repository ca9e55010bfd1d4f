"""The audit's page in a real browser: light, dark, narrow; from the disk, nothing loaded."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from ninfer.audit import Audit, judge_all
from ninfer.audit.compare import compare
from ninfer.audit.report import comparison_page, page_of
from tests.audit.sample_responses import sample_responses

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

# What a reader needs to tell text from its ground, by the guidelines for accessible pages.
CONTRAST = """
() => {
  const parse = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] === 1) return light(found);
    }
    return 1;
  };
  const poor = [];
  const names = "p, th, td, summary, span, li, pre, h1, h2, h3, text";
  for (const node of document.querySelectorAll(names)) {
    if (!node.textContent.trim()) continue;
    const style = getComputedStyle(node);
    const ink = light(parse(node.tagName === "text" ? style.fill : style.color));
    const [a, b] = [ink, ground(node)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(node.textContent.slice(0, 40));
  }
  return poor;
}
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    verdicts = judge_all(sample_responses())
    half = len(verdicts) // 2
    compared = compare(verdicts[:half], verdicts[half:], ("plain", "mtp3"), "category")
    texts = {"audit": page_of(Audit(verdicts)), "comparison": comparison_page(compared)}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def opened(browser: Browser, path: Path, **options: object) -> tuple[Page, list[str]]:
    page = browser.new_context(**options).new_page()
    seen: list[str] = []
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("console", lambda line: seen.append(line.text))
    page.on("request", lambda request: seen.append(request.url))
    page.goto(path.as_uri())
    return page, seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["audit", "comparison"])
def test_a_page_can_be_read(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str
) -> None:
    page, seen = opened(browser, pages[name], color_scheme=scheme)
    assert seen == [pages[name].as_uri()]  # nothing else is loaded, nothing goes wrong
    assert pages[name].stat().st_size < 2 << 20
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.evaluate(CONTRAST) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(247, 246, 243)", "dark": "rgb(19, 21, 22)"}[scheme]
    for svg in page.locator("svg").all():
        box = svg.bounding_box()
        assert box and box["width"] > 300 and box["height"] > 150
        assert len(svg.get_attribute("aria-label") or "") > 20
    assert page.locator("table caption").count() == page.locator("table").count() > 0
    assert page.locator("tbody tr").count() == page.locator("tbody th[scope=row]").count()
    page.context.close()


def test_the_audit_shows_loops_and_what_is_against_the_rest(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page, _ = opened(browser, pages["audit"])
    assert page.locator(".verdict").inner_text().startswith("24 of 30 responses are usable")
    titles = page.locator("figure h3").all_inner_texts()
    assert titles[:2] == [
        "Speed against usability, by fixture",
        "Acceptance against repetition, by response",
    ]
    assert titles[2] == "mtp3 against plain, same seeds"
    lines = page.locator("figure", has_text="Time line")
    assert lines.count() == 4
    band, whole = lines.first.locator("rect.loop"), lines.first.locator("svg")
    share = band.bounding_box()["width"] / whole.bounding_box()["width"]
    assert 0.7 < share < 0.9  # 160 of 180 lines
    problem = page.locator("details details").first
    problem.locator("summary").press("Enter")
    assert (
        "loop in the text" in problem.inner_text() and "ninfer bench corpus" in problem.inner_text()
    )
    page.context.close()


def test_a_narrow_screen_scrolls_tables_only(browser: Browser, pages: dict[str, Path]) -> None:
    size = {"width": 380, "height": 800}
    page, _ = opened(browser, pages["audit"], viewport=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.context.close()
