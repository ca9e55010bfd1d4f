"""One log format on stderr, with a level and a JSON form."""

import json
import logging
import sys
from typing import Final

LEVELS: Final = ("error", "warning", "info", "debug")


class _JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": round(record.created, 3),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage(),
            },
            ensure_ascii=False,
        )


def get_logger(name: str) -> logging.Logger:
    """The logger of a module; pass `__name__`."""
    return logging.getLogger(name)


def configure(level: str = "info", *, as_json: bool = False) -> None:
    """Send the package's log to stderr. `level` is one of LEVELS."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter() if as_json else text)
    root = logging.getLogger("ninfer")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
