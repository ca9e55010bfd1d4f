"""One JSON line for each event of a request, and for the server's start; never its text."""

import json
import time
import uuid
from pathlib import Path
from typing import Any, Final

from ninfer.errors import UsageError
from ninfer.log import get_logger

SCHEMA_VERSION: Final = 8
_log = get_logger(__name__)


class RequestLog:
    """Adds lines to a file, each whole and written at once. Without a file it does nothing."""

    def __init__(self, path: Path | None) -> None:
        """Raises UsageError for a file that cannot be opened."""
        self._instance = uuid.uuid4().hex
        try:
            self._file = None if path is None else path.open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--request-log-jsonl {path}: {error.strerror}") from None

    def write(self, event: str, **fields: Any) -> None:
        """Add a line. A file that cannot take it is given up with a warning; serving goes on."""
        if self._file is None:
            return
        line = {
            "artifact_type": "ninfer_serve_request_log",
            "schema_version": SCHEMA_VERSION,
            "event": event,
            "timestamp_unix_ms": round(time.time() * 1000),
            "server_instance_id": self._instance,
            **fields,
        }
        try:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            _log.warning("the request log cannot be written any more: %s", error.strerror)
            self._file = None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
