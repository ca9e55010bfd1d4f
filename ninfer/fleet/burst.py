"""One burst of requests to a server: also a program of its own, which a machine gets by its input.

Only the standard library, and no import of ours: `python3 -` runs this file where nothing else is
installed. Order and answer are JSON values, so neither prompts nor keys stand on a command line.
"""

from __future__ import annotations  # an old Python may run this

import http.client
import json
import threading
import time
import urllib.parse
from typing import Any


def burst(order: dict[str, Any]) -> dict[str, Any]:
    """Send `bodies` to `root`/v1/chat/completions at one moment; read `pages` before and after.

    `root` is an address without a path, `key` a bearer token or empty, `seconds` the limit of each
    answer. Returns {"before": {page: [HTTP status, text]}, "after": the same, "answers": [...]}:
    in the order of the bodies, each with HTTP `status` (0: none came), `text`, and `began` and
    `ended` in seconds of one clock.
    """
    headers = {"Content-Type": "application/json", "User-Agent": "ninfer-bench"}
    if order["key"]:
        headers["Authorization"] = "Bearer " + order["key"]
    bodies = [json.dumps(body) for body in order["bodies"]]
    answers: list[dict[str, Any]] = [{} for _ in bodies]
    # All are connected before any is sent: what is measured is the burst, not its beginning.
    ready = threading.Barrier(max(1, len(bodies)))

    def link() -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(order["root"])
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=order["seconds"])

    def ask(number: int) -> None:
        found = answers[number]
        connection = link()
        try:
            failure = None
            try:
                connection.connect()
            except OSError as error:
                failure = error
            ready.wait()
            found["began"] = time.monotonic()
            if failure is not None:
                raise failure
            connection.request("POST", "/v1/chat/completions", bodies[number], headers)
            reply = connection.getresponse()
            found["text"] = reply.read().decode("utf-8", "replace")
            found["status"] = reply.status
        except (OSError, http.client.HTTPException) as error:
            found["status"], found["text"] = 0, str(error) or type(error).__name__
        finally:
            found["ended"] = time.monotonic()
            connection.close()

    def page(path: str) -> list[Any]:
        connection = link()
        try:
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            return [reply.status, reply.read().decode("utf-8", "replace")]
        except (OSError, http.client.HTTPException) as error:
            return [0, str(error) or type(error).__name__]
        finally:
            connection.close()

    before = {path: page(path) for path in order["pages"]}
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "before": before,
        "after": {path: page(path) for path in order["pages"]},
        "answers": answers,
    }
