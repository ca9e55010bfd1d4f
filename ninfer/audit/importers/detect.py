"""Which format a file has, by what stands in it, and reading it into stored responses."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ninfer.audit.importers.bodies import body_responses, is_body
from ninfer.audit.importers.evals import evals_responses, is_evals
from ninfer.audit.importers.evalscope import evalscope_folder, evalscope_response, is_evalscope
from ninfer.audit.importers.vllm import is_vllm, vllm_responses
from ninfer.audit.record import StoredResponse, response_of
from ninfer.audit.response_file import read_file
from ninfer.errors import UsageError
from ninfer.json_text import parse_json

FORMATS: Final = (
    "stored responses, results of ninfer evals, of vllm bench serve --save-detailed, answers of "
    "llama.cpp or the OpenAI protocol as JSON or JSON lines, EvalScope's output folder"
)


def read_responses(path: Path) -> list[StoredResponse]:
    """The responses of a file, or of a folder of EvalScope.

    Raises UsageError for a file that is none of FORMATS, or that is damaged.
    """
    read = evalscope_folder(path) if path.is_dir() else _of_values(_values(path), path)
    found = list(read)
    if not found:
        raise UsageError(f"{path}: holds no responses")
    return found


def _values(path: Path) -> list[Any]:
    """The JSON values of a file: one, the members of a list, or one for each line."""
    text = read_file(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        lines = text.split("\n")
        # A line that a sudden end cut off is no damage; whoever goes on writing drops it.
        if not text.endswith("\n") and len(lines) > 1 and not _is_json(lines[-1]):
            lines = lines[:-1]
        places = ((line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.strip())
        return [parse_json(line, place, UsageError) for line, place in places]
    return value if isinstance(value, list) else [value]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _of_values(values: Sequence[Any], path: Path) -> Iterable[StoredResponse]:
    if not values:
        return ()
    first = values[0]
    if is_evals(first):
        return evals_responses(values)
    if isinstance(first, dict) and "schema" in first:
        return _last_tries([response_of(v, f"{path}:{n}") for n, v in enumerate(values, 1)])
    return _foreign(values, path)


def _last_tries(responses: Sequence[StoredResponse]) -> Iterator[StoredResponse]:
    """Without requests that failed and were sent again later."""
    last = {response.key: number for number, response in enumerate(responses)}
    for number, response in enumerate(responses):
        if response.error is None or last[response.key] == number:
            yield response


def _foreign(values: Sequence[Any], path: Path) -> Iterator[StoredResponse]:
    for number, value in enumerate(values):
        if is_vllm(value):
            yield from vllm_responses(value, str(path))
        elif is_evalscope(value):
            yield evalscope_response(value, path.stem, str(value.get("index", number)))
        elif is_body(value):
            yield from body_responses(value, path.stem, str(number))
        else:
            raise UsageError(f"{path}: value {number + 1} is nothing that is read here: {FORMATS}")
