"""The corpus: fixtures are sound, their answers proved; campaigns resume, retry, and do not mix."""

import base64
import io
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import av
import pytest
from PIL import Image

from ninfer.audit import Origin, ResponseFile, StoredResponse
from ninfer.audit.contracts import parse_check
from ninfer.bench.corpus import (
    SEEDS,
    Ask,
    Campaign,
    load_fixtures,
    parse_modes,
    plan_asks,
    set_names,
)
from ninfer.bench.corpus.asked import command_of, kept_request
from ninfer.bench.corpus.fixtures import WARM_UP, Fixture
from ninfer.bench.corpus.modes import Mode
from ninfer.bench.corpus.needles import CHARACTERS_PER_TOKEN, needle_text
from ninfer.bench.corpus.pictures import drawn_part
from ninfer.bench.corpus.time_line import TimeLine
from ninfer.engine import EngineOptions
from ninfer.errors import UsageError

EVERY = {fixture.name: fixture for name in set_names() for fixture in load_fixtures(name)}


def kept(name: str, text: str) -> bool:
    contract = EVERY[name].contract
    assert contract is not None
    return parse_check(contract, name)(text).ok


def test_sets_have_what_was_promised() -> None:
    categories: dict[str, int] = {}
    for fixture in load_fixtures("full"):
        categories[fixture.category] = categories.get(fixture.category, 0) + 1
        assert fixture.contract is not None, fixture.name
    for name in ("code", "story", "translation", "structured"):
        assert categories[name] == 3
    assert categories["needle"] == 4 and categories["reasoning"] == 4
    assert categories["cases"] + categories["media"] == 11
    assert {f.tokens for f in load_fixtures("full", ["needle"])} == {8192, 65536, 131072, 262144}
    assert len(SEEDS) == len(set(SEEDS)) == 5
    chosen = [f.name for f in load_fixtures("text", ["code_cuda", "story"])]
    assert chosen[0] == "code_cuda" and len(chosen) == 4
    with pytest.raises(UsageError, match="--fixture poem"):
        load_fixtures("text", ["poem"])
    with pytest.raises(UsageError, match="--set huge: must be one of tiny"):
        load_fixtures("huge")


def neighbours() -> int:
    orders = itertools.permutations(range(1, 9))
    return sum(all(abs(a - b) != 1 for a, b in itertools.pairwise(p)) for p in orders)


def squares() -> int:
    pairs = itertools.product(range(1, 301), repeat=2)
    return sum((a * a + 3 * a * b + b * b) % 121 == 0 for a, b in pairs)


@lru_cache(None)
def paths(x: int = 0, y: int = 0, diagonal: bool = False) -> int:
    if x > 7 or y > 7 or y > x + 1:
        return 0
    if (x, y) == (7, 7):
        return 1
    straight = paths(x + 1, y) + paths(x, y + 1)
    return straight + (0 if diagonal else paths(x + 1, y + 1, True))


def digit_sums() -> int:
    return sum(math.gcd(n, sum(map(int, str(n)))) == 3 for n in range(1, 2001))


@pytest.mark.parametrize(
    ("name", "search"),
    [
        ("reasoning_neighbours", neighbours),
        ("reasoning_squares", squares),
        ("reasoning_paths", paths),
        ("reasoning_zh", digit_sums),
    ],
)
def test_answers_of_reasoning_are_proved(name: str, search: Callable[[], int]) -> None:
    assert r"\boxed{}" in EVERY[name].messages[0]["content"]
    assert kept(name, rf"Therefore \boxed{{{search()}}}.")
    assert not kept(name, rf"Therefore \boxed{{{search() + 1}}}.")


def test_the_logic_grid_has_one_solution() -> None:
    found = [
        1000 * a + 210 * b + 37 * c + 11 * d + e
        for a, b, c, d, e in itertools.permutations(range(1, 6))
        if a > c and b % 2 and abs(d - b) == 1 and e not in (1, 5) and abs(c - a) == 2 and b < e
    ]
    assert len(found) == 1 and kept("thinking_logic_grid", f"So\nCHECK={found[0]}")


CACHE = """
class TTLCache:
    def __init__(self, capacity, ttl, clock):
        if capacity <= 0 or ttl <= 0:
            raise ValueError("must be positive")
        self.capacity, self.ttl, self.clock, self.items = capacity, ttl, clock, {}

    def _live(self):
        now = self.clock()
        self.items = {k: v for k, v in self.items.items() if now - v[1] < self.ttl}
        return self.items

    def __len__(self):
        return len(self._live())

    def get(self, key, default=None):
        if key not in self._live():
            return default
        value = self.items.pop(key)
        self.items[key] = value
        return value[0]

    def put(self, key, value):
        self._live().pop(key, None)
        while len(self.items) >= self.capacity:
            self.items.pop(next(iter(self.items)))
        self.items[key] = (value, self.clock())
"""


def test_a_right_program_keeps_the_contract_and_a_wrong_one_does_not() -> None:
    test = "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n"
    answer = f"```python\n# ttl_cache.py\n{CACHE}```\n```python\n# test_ttl_cache.py\n{test}```"
    assert kept("code_python", answer)
    assert not kept("code_python", answer.replace("< self.ttl", "<= self.ttl * 2"))


SQL = """
CREATE TABLE authors (id INTEGER PRIMARY KEY, name TEXT, country TEXT);
CREATE TABLE books (id INTEGER PRIMARY KEY, author_id INTEGER REFERENCES authors (id), title TEXT,
  year INTEGER, price REAL);
CREATE TABLE sales (id INTEGER PRIMARY KEY, book_id INTEGER REFERENCES books (id), sold_on TEXT,
  copies INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12)
  INSERT INTO authors SELECT i, 'a' || i, 'x' FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
  INSERT INTO books SELECT i, 1 + i % 12, 't' || i, 1990, 9.5 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
  INSERT INTO sales SELECT i, 1 + i % 30, '2020-01-01', i FROM n;
CREATE VIEW book_totals AS SELECT b.id AS book_id, coalesce(sum(s.copies), 0) AS copies
  FROM books b LEFT JOIN sales s ON s.book_id = b.id GROUP BY b.id;
CREATE VIEW author_totals AS SELECT a.id AS author_id, count(b.id) AS books,
  coalesce(sum(t.copies), 0) AS copies FROM authors a LEFT JOIN books b ON b.author_id = a.id
  LEFT JOIN book_totals t ON t.book_id = b.id GROUP BY a.id;
"""


def test_structured_contracts_can_be_kept() -> None:
    assert kept("structured_sql", f"```sql\n{SQL}```")
    assert not kept("structured_sql", f"```sql\n{SQL.replace('LEFT JOIN sales', 'JOIN sales')}```")
    rows = [f"{n},王{n},研发,2020-01-0{n % 9 + 1},9000" for n in range(1, 221)]
    assert kept("structured_csv", "\n".join(["id,姓名,部门,入职日期,月薪", *rows]))
    lines = [
        f'{{"id": {n}, "city": "x", "kind": "park", "opened": "1999-01-01", "visitors": 1, '
        f'"free": true}}'
        for n in range(1, 161)
    ]
    assert kept("structured_jsonl", "\n".join(lines))
    assert not kept("structured_jsonl", "\n".join(lines[:-1]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tiny_sum", "418 + 277 = 695"),
        ("tiny_difference", "730 - 64 = 666"),
        ("tiny_copy", "Q7TD-MX20-9KLV-R4HB"),
        ("tiny_csv", "name,town,count,price\n" + "\n".join("a,b,1,2.5" for _ in range(4))),
        ("tiny_translation_de_en", "The dog knows the small house."),
        ("tiny_needle", "6381"),
        ("tiny_story", "Part 1: Lucas.\n\nPart 2: harbour.\n\nPart 3: lamp.\n\nThe end."),
        (
            "tiny_sql",
            "INSERT INTO books (id, author, price) VALUES (1, 'a', 2), (2, 'b', 3), (3, 'c', 4);",
        ),
        ("text_chat_history", "Larch|2038-04-23|58"),
        ("text_code_review", "An empty list raises ZeroDivisionError."),
        ("image_chart", "482. There are three red circles. The square is left of the triangle."),
        ("image_scene", "36; the sun is on the right."),
        ("video_temporal", "from left to right; 3"),
        ("multi_image_compare", "first=2; second=3; also=a yellow star"),
        ("mixed_image_video", "LARK-8"),
        ("mixed_multiturn", "36-2"),
        ("thinking_multimodal_checksum", f"CHECKSUM={1407 + 853}"),
        ("needle_8k", "HERON=582613; METAL=BRASS"),
    ],
)
def test_right_answers_keep_their_contracts(name: str, text: str) -> None:
    assert kept(name, text)
    assert not kept(name, "I do not know.")


def test_needles_stand_where_they_should() -> None:
    for tokens, position in ((700, 0.5), (8000, 0.0), (8000, 0.9), (62000, 1.0)):
        text = needle_text("HERE IT IS.", tokens, position)
        assert text.count("HERE IT IS.") == 1
        assert abs(text.index("HERE") / len(text) - position) < 0.2 if tokens == 700 else 0.01
        assert abs(len(text) / (tokens * CHARACTERS_PER_TOKEN) - 1) < 0.05
        sentences = re.split(r"(?<=\.)\s+", text)
        assert len(set(sentences)) == len(sentences)
    fixture = EVERY["needle_8k"]
    content = fixture.messages[0]["content"]
    assert content.count("HERON=582613") == 1 and "{text}" not in content


def data_of(part: dict) -> bytes:
    return base64.b64decode(part[part["type"]]["url"].partition("base64,")[2])


def test_pictures_are_what_they_are_said_to_be() -> None:
    chart = Image.open(io.BytesIO(data_of(drawn_part("chart"))))
    assert chart.size == (448, 448)
    assert [chart.getpixel((x, 180)) for x in (90, 224, 358)] == [(205, 40, 40)] * 3
    assert chart.getpixel((130, 340)) == (40, 80, 200) and chart.getpixel((320, 350)) == (
        40,
        140,
        60,
    )
    star = Image.open(io.BytesIO(data_of(drawn_part("three_circles_and_star"))))
    assert star.getpixel((160, 240)) == (240, 200, 30)
    with av.open(io.BytesIO(data_of(drawn_part("moving_circle")))) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
        assert video.streams.video[0].average_rate == 4
    assert len(frames) == 12
    reds = [frame[44, :, 0].astype(int) - frame[44, :, 1] for frame in frames]
    places = [int(line.argmax()) for line in reds]
    assert places == sorted(places) and places[0] < 20 < 100 < places[-1]
    assert [tuple(frames[0][104, x]) for x in (30, 80, 130)] == [(40, 140, 60)] * 3


def test_the_media_fixtures_are_what_our_server_reads() -> None:
    from ninfer.frontend import parse_conversation

    for fixture in load_fixtures("media"):
        assert fixture.has_media
        conversation = parse_conversation(list(fixture.messages), None)
        assert any(part.kind != "text" for m in conversation.messages for part in m.content)


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("plain", [Mode("plain")]),
        ("mtp3, lookup", [Mode("mtp3", "mtp", 3), Mode("lookup", "lookup")]),
        ("dflash7,dflash2", [Mode("dflash7", "dflash", 7), Mode("dflash2", "dflash2")]),
        ("dflash2-7", [Mode("dflash2-7", "dflash2", 7)]),
    ],
)
def test_modes(text: str, modes: list[Mode]) -> None:
    assert parse_modes(text) == modes
    options = EngineOptions(artifact=Path("a"), lm_head_draft=True)
    for mode in modes:
        applied = mode.applied(options)
        assert applied.spec == mode.spec and applied.draft_tokens == mode.draft_tokens
        assert applied.adaptive_drafts == (mode.draft_tokens is None)
        assert applied.lm_head_draft == (mode.spec is not None)


@pytest.mark.parametrize("text", ["", "eagle", "mtp9", "mtp0", "dflash16", "plain3"])
def test_modes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--mode"):
        parse_modes(text)


class Scripted:
    """A partner that answers, and fails for some fixtures."""

    def __init__(self, *failing: str) -> None:
        self.failing, self.asked = set(failing), list[str]()

    def answer(self, ask: Ask, mode: str) -> StoredResponse:
        self.asked.append(ask.fixture.name)
        failed = ask.fixture.name in self.failing
        return StoredResponse(
            ask.fixture.name,
            "x",
            "error" if failed else "stop",
            mode=mode,
            sampling=ask.sampling,
            seed=ask.seed,
            contract=ask.fixture.contract,
            error="503" if failed else None,
            origin=Origin(model="m"),
        )


def asks(*names: str, seeds: tuple[int, ...] = (1, 2)) -> list[Ask]:
    fixtures = [Fixture(name, "c", ({"role": "user", "content": name},), 9) for name in names]
    return plan_asks(fixtures, ["greedy"], seeds, None)


def run(path: Path, partner: Scripted, todo: list[Ask], mode: str = "plain") -> int:
    count = 0

    def one_more() -> None:
        nonlocal count
        count += 1

    with ResponseFile(path) as file:
        campaign = Campaign(todo, file)
        campaign.check_same(todo, mode, "m")
        campaign.run(partner, mode, 1, one_more)
    return count


def test_a_campaign_goes_on_where_it_was_and_asks_failures_again(tmp_path: Path) -> None:
    path, todo = tmp_path / "c.jsonl", asks("a", "b")
    assert run(path, Scripted("b"), todo) == 4
    again = Scripted()
    assert run(path, again, todo) == 2
    assert again.asked == [WARM_UP, "b", "b"]
    third = Scripted()
    assert run(path, third, asks("a", "b", "c")) == 2 and third.asked == [WARM_UP, "c", "c"]
    assert run(path, Scripted(), asks("a", "b", "c")) == 0
    assert run(path, Scripted(), todo, "mtp3") == 4


def test_a_campaign_ends_when_nobody_answers(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    todo = asks("a", seeds=tuple(range(9)))
    with pytest.raises(UsageError, match="5 requests one after another failed, the last with: 503"):
        run(path, Scripted("a"), todo)
    with ResponseFile(path) as file:
        assert len(file.responses) == 5
    assert run(path, Scripted(), todo) == 9


def test_models_and_contracts_are_not_mixed(tmp_path: Path) -> None:
    path, todo = tmp_path / "c.jsonl", asks("a")
    run(path, Scripted(), todo)
    with ResponseFile(path) as file:
        campaign = Campaign(todo, file)
        with pytest.raises(UsageError, match="responses of model 'm', not of 'other'"):
            campaign.check_same(todo, "plain", "other")
        changed = [
            replace(ask, fixture=replace(ask.fixture, contract={"kind": "text", "equals": "x"}))
            for ask in todo
        ]
        with pytest.raises(UsageError, match="fixture a had another contract"):
            campaign.check_same(changed, "plain", "m")


def test_nothing_to_ask_is_refused() -> None:
    with pytest.raises(UsageError, match="no fixture is left"):
        plan_asks([], ["greedy"], [1], None)


def test_a_stored_request_holds_hashes_of_pictures() -> None:
    fixture = EVERY["image_scene"]
    stored = kept_request({"messages": list(fixture.messages), "seed": 1})
    url = stored["messages"][0]["content"][0]["image_url"]["url"]
    assert re.fullmatch(r"sha256:[0-9a-f]{64} of a data URL of \d+ characters", url)
    assert len(fixture.messages[0]["content"][0]["image_url"]["url"]) > 1000


def test_the_command_repeats_one_question() -> None:
    (ask, _) = plan_asks([EVERY["tiny_copy"]], ["greedy"], [7, 8], 32)
    assert command_of(("a b.ninfer",), ask, "mtp3") == (
        "ninfer bench corpus 'a b.ninfer' --mode mtp3 --sampling greedy --set tiny --fixture "
        "tiny_copy --seed 7 --max-new 32 --output again.jsonl"
    )


def test_a_time_line_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    line = TimeLine()
    monkeypatch.setattr(line, "seconds", iter(range(1, 100_000)).__next__)
    for _ in range(10_000):
        line.add(3)
    line.add(0)
    points = line.points
    assert 100 < len(points) <= 400 and points[-1][1] == 30_000 and line.first == 1
    assert list(points) == sorted(points)
