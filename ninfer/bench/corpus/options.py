"""What a user may ask of a campaign: defaults, help and checks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError
from ninfer.options import option

SEEDS: Final = (
    7632647173703958409,
    7968175640111700217,
    912910298659544128,
    9060622443728853932,
    4939353812939007330,
)
SAMPLINGS: Final = ("stochastic", "greedy")
_MOST_CONCURRENT: Final = 64


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """Which fixtures are asked of whom, how often and how, and where the responses go."""

    server: str | None = option(None, "address of a server, in place of ARTIFACT", metavar="URL")
    output: Path | None = option(
        None,
        "file of stored responses; what it already holds is not asked again",
        metavar="FILE",
    )
    mode: str = option(
        "",
        "what drafts tokens: plain, lookup, mtp3, dflash7, dflash2-7; several with commas for an "
        "artifact, one name for a server, which it has to run already",
        metavar="NAMES",
        unset="plain; for a server, what it says of itself",
    )
    sampling: str = option(
        "stochastic", "stochastic, greedy, or both with a comma", metavar="NAMES"
    )
    set: str = option("text", "set of fixtures; see --list", metavar="NAME")
    fixture: tuple[str, ...] = option(
        (), "only this fixture or category of the set; repeatable", metavar="NAME", unset="all"
    )
    seed: tuple[int, ...] = option((), "repeatable", metavar="N", unset="the five of the corpus")
    max_new: int | None = option(
        None, "tokens of an answer at most", metavar="N", unset="the fixture's own limit"
    )
    concurrency: int = option(
        1, "requests at once, 1..64, of a server; rates are then those in company", metavar="N"
    )
    model: str | None = option(
        None, "model name, for a server", metavar="NAME", unset="the first that the server lists"
    )
    key_env: str = option(
        "NINFER_API_KEY", "variable that holds the server's key", metavar="VARIABLE"
    )
    extensions: bool = option(
        True,
        "send a server only what the OpenAI protocol has: no top_k, no switch for thinking, no "
        "wish for token ids; for servers that refuse these",
    )
    max_context: int | None = option(
        None,
        "tokens one sequence may hold, for an artifact",
        metavar="N",
        unset="what the longest fixture may need",
    )
    list: bool = option(False, "list the sets and their fixtures, and do nothing else")


def check_corpus(options: CorpusOptions, *, artifact: bool) -> None:
    """Raises UsageError naming the option and the value that is wrong."""
    if artifact == (options.server is not None):
        raise UsageError("give either an ARTIFACT or --server URL")
    if options.output is None:
        raise UsageError("--output FILE is missing; the responses go there")
    for flag, value in (("--max-new", options.max_new), ("--max-context", options.max_context)):
        if value is not None and value < 1:
            raise UsageError(f"{flag} {value}: must be positive")
    if not 1 <= options.concurrency <= _MOST_CONCURRENT:
        raise UsageError(f"--concurrency {options.concurrency}: must be 1..{_MOST_CONCURRENT}")
    if artifact and options.concurrency > 1:
        raise UsageError(
            f"--concurrency {options.concurrency}: an artifact answers one request at a time; "
            "serve it with 'ninfer serve' and use --server for more"
        )
    if options.server is not None and options.max_context is not None:
        raise UsageError("--max-context: is the server's own with --server; leave it out")
    for word in samplings(options):
        if word not in SAMPLINGS:
            raise UsageError(f"--sampling {word}: must be of {', '.join(SAMPLINGS)}")
    for seed in options.seed:
        if not 0 <= seed < 1 << 63:
            raise UsageError(f"--seed {seed}: must be 0..2^63 - 1, which all servers take")


def samplings(options: CorpusOptions) -> tuple[str, ...]:
    """The sampling names, each once."""
    return tuple(dict.fromkeys(word.strip() for word in options.sampling.split(",")))
