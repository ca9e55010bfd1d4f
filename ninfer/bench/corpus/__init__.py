"""The corpus: fixtures with contracts, asked of a server or an artifact, stored for the audit."""

from ninfer.bench.corpus.campaign import Campaign, Partner
from ninfer.bench.corpus.fixtures import Fixture, load_fixtures, set_names
from ninfer.bench.corpus.modes import Mode, parse_modes
from ninfer.bench.corpus.options import SEEDS, CorpusOptions, check_corpus
from ninfer.bench.corpus.plan import Ask, plan_asks

__all__ = [
    "SEEDS",
    "Ask",
    "Campaign",
    "CorpusOptions",
    "Fixture",
    "Mode",
    "Partner",
    "check_corpus",
    "load_fixtures",
    "parse_modes",
    "plan_asks",
    "set_names",
]
