"""A campaign as it might come out: two modes, five seeds; usable, looping, cut and broken."""

import random
from collections.abc import Iterator

from ninfer.audit import Drafts, Origin, StoredResponse, Timings, TokenCounts

SEEDS = range(5)
RATES = {"plain": 62.0, "mtp3": 118.0}
FIXTURES = {"code_python": "code", "story_en": "story", "structured_csv": "structured"}
CSV = {
    "kind": "csv",
    "count": 40,
    "fields": [
        {"name": "id", "type": "integer", "unique": True},
        {"name": "city", "type": "string"},
    ],
}


def sentence(draw: random.Random) -> str:
    words = ["".join(draw.choices("abcdefghilmnoprstu", k=draw.randint(2, 9))) for _ in range(12)]
    return " ".join(words).capitalize() + "."


def text_of(fixture: str, seed: int, draw: random.Random) -> tuple[str, str]:
    """A text and how it ended; some seeds go wrong."""
    if fixture == "structured_csv":
        rows = [
            f"{n},{draw.choice(('Ulm', 'Graz', 'Bern'))}" for n in range(40 if seed != 2 else 31)
        ]
        return "\n".join(["id,city", *rows]), "stop" if seed != 2 else "length"
    lines = [sentence(draw) for _ in range(60)]
    if fixture == "story_en" and seed in (1, 3):
        return "\n".join([*lines[:20], *lines[20:24] * 40]), "length"
    return "\n".join(lines), "stop"


def sample_responses() -> Iterator[StoredResponse]:
    for mode, speed in RATES.items():
        for fixture, category in FIXTURES.items():
            for seed in SEEDS:
                draw = random.Random(f"{fixture} {seed}")
                text, reason = text_of(fixture, seed, draw)
                looping = text.count(text.split("\n")[-1]) > 3
                tokens = len(text) // 4
                rate = (
                    speed * (1.6 if looping and mode != "plain" else 1) * draw.uniform(0.95, 1.05)
                )
                seconds = tokens / rate
                drafts = None
                if mode != "plain":
                    share = 0.97 if looping else draw.uniform(0.5, 0.7)
                    drafts = Drafts(tokens // 3, tokens, int(tokens * share))
                yield StoredResponse(
                    fixture,
                    text,
                    reason,
                    category=category,
                    mode=mode,
                    sampling="stochastic",
                    seed=seed,
                    contract=CSV if fixture == "structured_csv" else None,
                    usage=TokenCounts(200, tokens),
                    timings=Timings(0.4 + seconds, 0.4, 0.4, seconds),
                    drafts=drafts,
                    pieces=tuple(
                        (round(0.4 + seconds * n / 80, 4), len(text) * n // 80)
                        for n in range(1, 81)
                    ),
                    origin=Origin("http://127.0.0.1:8080", "sample", "ninfer", "0000000", "a card"),
                    command=f"ninfer bench corpus --fixture {fixture} --seed {seed} -o again.jsonl",
                )
