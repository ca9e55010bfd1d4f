"""The load: every request with its time, sizes and text, the same for the same options."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ninfer.bench.serve.options import ServeLoadOptions, mix_of

# Short words of several kinds: about one token each for most tokenizers, and no text that repeats.
_LIST: Final = (
    "anchor apple arrow autumn basket beach bell bird blue boat book bread bridge bright brown "
    "candle carpet castle chair clear cloud coast cold copper corner cotton cream dance dark deep "
    "desert door dream early earth east empty engine evening farm feather field fire fish floor "
    "flower forest fresh friend garden glass gold grain grass green ground harbor heavy hill home "
    "honey horse house island kitchen lake lamp large late leaf letter light linen little long "
    "maple market meadow metal milk mirror moon morning mountain music narrow needle night north "
    "ocean old open orange paper path pencil piano pine plain quiet rain red river road roof root "
    "round salt sand sea shadow sharp silver slow small smoke snow soft song south spring star "
    "stone storm street summer sun sweet table tall tea thread tower train tree valley village "
    "wall warm water west wheat white wide wild wind window winter wood wool yellow young"
)
_WORDS: Final = tuple(_LIST.split())
# An answer that keeps to this many words a token ends before its limit.
_WORDS_A_TOKEN: Final = 0.5
_LEAST_WORDS: Final = 3


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of the load. `due` is in seconds from the start; None: when a place is free."""

    number: int
    due: float | None
    prompt_tokens: int
    output_tokens: int
    group: int  # of those with the same beginning
    seed: int


def plan_load(options: ServeLoadOptions) -> list[Arrival]:
    """All requests in order. Options are checked already."""
    draw = random.Random(options.seed)
    prompts = mix_of("--prompt-tokens", options.prompt_tokens)
    outputs = mix_of("--output-tokens", options.output_tokens)
    times = _times(options, random.Random(options.seed + 1))
    return [
        Arrival(
            number,
            next(times),
            draw.choices(prompts.sizes, prompts.weights)[0],
            draw.choices(outputs.sizes, outputs.weights)[0],
            draw.randrange(options.prefix_groups),
            draw.randrange(1 << 62),
        )
        for number in range(options.requests)
    ]


def _times(options: ServeLoadOptions, draw: random.Random) -> Iterator[float | None]:
    at = 0.0
    while True:
        if options.rate is None:
            yield None
            continue
        yield at
        constant = options.arrival == "constant"
        at += 1 / options.rate if constant else draw.expovariate(options.rate)


@dataclass(frozen=True, slots=True)
class Texts:
    """Makes prompts. `tokens_a_word` and `frame` (tokens besides words) are the server's own."""

    options: ServeLoadOptions
    tokens_a_word: float = 1.0
    frame: float = 0.0

    def prompt(self, arrival: Arrival) -> str:
        """A prompt of about so many tokens that begins as those of its group do."""
        shared = round(self.options.shared_prefix / self.tokens_a_word)
        whole = round(max(arrival.prompt_tokens - self.frame, 0) / self.tokens_a_word)
        ask = question(arrival.output_tokens)
        own = max(whole - shared - len(ask.split()), 1)
        beginning = _some(random.Random(f"{self.options.seed} group {arrival.group}"), shared)
        rest = _some(random.Random(f"{self.options.seed} request {arrival.number}"), own)
        return " ".join([*beginning, *rest, ask])


def question(output_tokens: int) -> str:
    """What is asked, so that a model that does as it is told ends by itself within its limit."""
    words = max(round(output_tokens * _WORDS_A_TOKEN), _LEAST_WORDS)
    return f". Of these words choose some and write a little story of {words} words with them."


def sample_text(words: int) -> str:
    """Words to measure how many tokens a server makes of a word."""
    return " ".join(_some(random.Random("sample"), words))


def _some(draw: random.Random, count: int) -> list[str]:
    return draw.choices(_WORDS, k=count)
