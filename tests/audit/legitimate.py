"""Texts that repeat themselves with good reason: poems, tables, logs, code, records, documents."""

import random
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NOUNS = [
    "river",
    "moon",
    "lantern",
    "window",
    "garden",
    "winter",
    "harbour",
    "violin",
    "shadow",
    "morning",
    "road",
    "orchard",
]
VERBS = [
    "turns",
    "falls",
    "waits",
    "sings",
    "burns",
    "sleeps",
    "returns",
    "breaks",
    "listens",
    "answers",
    "remembers",
]
ADJECTIVES = [
    "old",
    "silver",
    "quiet",
    "bright",
    "lonely",
    "golden",
    "distant",
    "broken",
    "gentle",
    "hidden",
]


def phrase(draw: random.Random) -> str:
    return f"the {draw.choice(ADJECTIVES)} {draw.choice(NOUNS)} {draw.choice(VERBS)}"


def poem(draw: random.Random) -> str:
    """Verses with a refrain of two lines, and a last line that is sung four times."""
    refrain = f"O {phrase(draw)},\nO {phrase(draw)}!"
    verses = [
        "\n".join([*(phrase(draw).capitalize() + "," for _ in range(4)), refrain])
        for _ in range(draw.randint(5, 12))
    ]
    last = phrase(draw).capitalize() + "."
    return "\n\n".join([*verses, "\n".join([last] * 4)])


def table(draw: random.Random) -> str:
    """A table of which half of the rows are the same but for the number."""
    rows = [
        f"| {n} | {draw.choice(NOUNS) if draw.random() < 0.5 else 'n/a'} | 0 | 0.00 |"
        for n in range(draw.randint(30, 300))
    ]
    return "\n".join(["| id | name | count | price |", "|---|---|---|---|", *rows])


def csv(draw: random.Random) -> str:
    """Rows with many equal ones among them."""
    rows = [f"{draw.randint(1, 3)},yes,EUR,{draw.choice('AB')}" for _ in range(220)]
    return "\n".join(["kind,paid,currency,class", *rows])


def log(draw: random.Random) -> str:
    """A log with times, in which a client tries the same thing again and again."""
    lines = []
    seconds = draw.randint(0, 1000)
    for _ in range(draw.randint(60, 400)):
        seconds += draw.randint(0, 9)
        clock = f"12:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        event = draw.choice(("connection refused, trying again", "heartbeat", "GET /health 200"))
        lines.append(f"{clock} INFO worker-{draw.randint(1, 3)} {event}")
    return "\n".join(lines)


def bare_log(draw: random.Random) -> str:
    """A log without times: a dozen equal lines, then it goes on."""
    lines = []
    for _ in range(draw.randint(5, 12)):
        lines += ["waiting for the database ..."] * draw.randint(1, 12)
        lines.append(f"step {draw.randint(1, 99)} of {phrase(draw)} done")
    return "\n".join(lines)


def matrix(draw: random.Random) -> str:
    """A program with a matrix of zeros and a table of constants."""
    size = draw.randint(4, 12)
    zeros = ",\n".join("    [" + ", ".join("0" for _ in range(size)) + "]" for _ in range(size))
    body = "\n".join(f"x[{n}] = mix(x[{n}], key[{n % 4}])" for n in range(64))
    return f"import mix\n\nGRID = [\n{zeros},\n]\n\n{body}\n" + table(draw)


def records(draw: random.Random) -> str:
    """JSON lines of one shape, many values equal."""
    return "\n".join(
        f'{{"id": {n}, "ok": true, "tags": [], "note": null, "by": "{draw.choice(NOUNS)}"}}'
        for n in range(160)
    )


def sql(draw: random.Random) -> str:
    rows = ",\n".join(f"({n}, 'open', 0, NULL, {draw.randint(1, 5)})" for n in range(150))
    return f"INSERT INTO orders (id, state, paid, note, kind) VALUES\n{rows};"


def counting(draw: random.Random) -> str:
    """A song that counts down."""
    return "\n\n".join(
        f"{n} green bottles hanging on the wall,\n{n} green bottles hanging on the wall,\n"
        f"And if one green bottle should accidentally fall,\nThere'd be {n - 1} green bottles."
        for n in range(draw.randint(20, 60), 0, -1)
    )


SHAPES = (poem, table, csv, log, bare_log, matrix, records, sql, counting)


def legitimate_texts() -> Iterator[tuple[str, str]]:
    """Names and texts: eleven of each shape, and files of this repository."""
    for shape in SHAPES:
        for seed in range(11):
            yield f"{shape.__name__}-{seed}", shape(random.Random(seed))
    patterns = ("ninfer/ops/**/*.py", "docs/*.md", "ninfer/server/page/*", "tests/ops/*.py")
    files = [file for pattern in patterns for file in sorted(ROOT.glob(pattern)) if file.is_file()]
    for file in files[:180]:
        yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
