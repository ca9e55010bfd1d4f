"""The record of a load: options, machine, figures, and the times of every request, as JSON."""

import datetime
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from ninfer.audit import Audit
from ninfer.bench.machine import this_machine
from ninfer.bench.serve.asking import Served
from ninfer.bench.serve.figures import LoadFigures
from ninfer.bench.serve.options import ServeLoadOptions

SCHEMA: Final = 1


def record_of(
    options: ServeLoadOptions, served: Sequence[Served], figures: LoadFigures, audit: Audit
) -> str:
    """One JSON object; texts are not in it. `client` is the machine that sent the load."""
    values = {
        "schema": SCHEMA,
        "benchmark": "serve",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "client": asdict(this_machine()),
        "options": {
            name: str(value) if name in ("output", "record") else value
            for name, value in asdict(options).items()
        },
        "figures": figures.to_json(),
        "audit": {"summary": audit.sentence, "usable_share": audit.usable_share},
        "requests": [_request(one) for one in served],
    }
    return json.dumps(values, indent=1) + "\n"


def _request(served: Served) -> dict[str, Any]:
    usage, response = served.response.usage, served.response
    return {
        **asdict(served.arrival),
        "due": served.due,
        "sent": served.sent,
        "ended": served.ended,
        "pieces": served.pieces,
        "prompt_counted": usage.prompt,
        "cached": usage.cached,
        "tokens": served.tokens,
        "finish_reason": response.finish_reason,
        "error": response.error,
    }
