"""Suites: folders of JSONL files, one for each task, whose lines are items to answer."""

import hashlib
import importlib.resources
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from ninfer.errors import UsageError
from ninfer.evals.graders import Grader, parse_grade
from ninfer.json_text import parse_json

_SUFFIX: Final = ".jsonl"
_REQUIRED: Final = ("id", "task", "messages", "max_new", "grade")
_OPTIONAL: Final = ("tools", "thinking", "reference")
_MEDIA: Final = frozenset({"image", "image_url", "input_image", "video", "video_url"})
# Hex digits that tell items apart in result files.
_DIGEST: Final = 16


@dataclass(frozen=True, slots=True)
class Item:
    """One question with its grader.

    `messages` and `tools` are as in OpenAI Chat Completions, for `parse_conversation` to read.
    `reference` is the answer of the suite's author, for people to read. `digest` changes with
    everything that may change an answer or its grade.
    """

    id: str
    task: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    thinking: bool
    max_new: int
    grader: Grader
    reference: Any
    digest: str

    @property
    def has_media(self) -> bool:
        """Whether a message shows an image or a video."""
        return any(
            isinstance(part, Mapping) and part.get("type") in _MEDIA
            for message in self.messages
            for part in (message.get("content") or ())
        )


@dataclass(frozen=True, slots=True)
class Suite:
    """Items in the order of task names and files."""

    name: str
    items: tuple[Item, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Task names in order."""
        return tuple(dict.fromkeys(item.task for item in self.items))

    @property
    def digest(self) -> str:
        """A hash of all items."""
        text = "".join(item.digest for item in self.items)
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]

    def of_tasks(self, tasks: Iterable[str]) -> "Suite":
        """Only these tasks. Raises UsageError for one that the suite does not have."""
        wanted = set(tasks)
        for task in sorted(wanted - set(self.tasks)):
            raise UsageError(f"--task {task}: suite {self.name} has {', '.join(self.tasks)}")
        return Suite(self.name, tuple(item for item in self.items if item.task in wanted))

    def first(self, limit: int) -> "Suite":
        """The first `limit` items of each task."""
        kept: list[Item] = []
        counts = dict.fromkeys(self.tasks, 0)
        for item in self.items:
            counts[item.task] += 1
            if counts[item.task] <= limit:
                kept.append(item)
        return Suite(self.name, tuple(kept))

    def without_media(self) -> "Suite":
        """Only items of text."""
        return Suite(self.name, tuple(item for item in self.items if not item.has_media))


def suite_names() -> list[str]:
    """The suites that come with the package."""
    root = importlib.resources.files("ninfer.evals") / "suites"
    return sorted(entry.name for entry in root.iterdir() if _files(entry)) if root.is_dir() else []


def load_suite(name: str) -> Suite:
    """A suite of the package by name, or one in a folder by its path.

    Raises UsageError naming the file, line and member that is wrong.
    """
    folder = _folder(name)
    files = _files(folder)
    items = [item for file in files for item in _items(file)]
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise UsageError(f"suite {name}: id {item.id!r} stands twice")
        seen.add(item.id)
    return Suite(folder.name, tuple(items))


def _folder(name: str) -> Traversable:
    if name in suite_names():
        return importlib.resources.files("ninfer.evals") / "suites" / name
    folder = Path(name)
    if not folder.is_dir():
        known = ", ".join(suite_names()) or "none"
        raise UsageError(f"--suite {name}: neither a suite (known: {known}) nor a folder")
    if not _files(folder):
        raise UsageError(f"--suite {name}: the folder has no {_SUFFIX} files")
    return folder.resolve()


def _files(folder: Traversable) -> list[Traversable]:
    if not folder.is_dir():
        return []
    files = [entry for entry in folder.iterdir() if entry.name.endswith(_SUFFIX)]
    return sorted(files, key=lambda file: file.name)


def _items(file: Traversable) -> Iterable[Item]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file.name}: {reason}") from error
    task = file.name.removesuffix(_SUFFIX)
    # Not splitlines: a JSON text may hold other line separators as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{file.name}:{number}"
            item = parse_item(parse_json(line, where, UsageError), where)
            if item.task != task:
                raise UsageError(f"{where}.task: {item.task!r} must be {task!r}, as the file")
            yield item


def parse_item(values: Any, where: str) -> Item:
    """An item from its JSON object. Raises UsageError naming the wrong member."""
    if not isinstance(values, dict):
        raise UsageError(f"{where}: must be an object")
    for name in _REQUIRED:
        if name not in values:
            raise UsageError(f"{where}.{name}: missing")
    for name in values:
        if name not in (*_REQUIRED, *_OPTIONAL):
            raise UsageError(f"{where}.{name}: unknown")
    max_new, thinking = values["max_new"], values.get("thinking", False)
    if type(max_new) is not int or max_new < 1:
        raise UsageError(f"{where}.max_new: {max_new!r} must be a positive whole number")
    if not isinstance(thinking, bool):
        raise UsageError(f"{where}.thinking: {thinking!r} must be true or false")
    messages = _objects(values["messages"], f"{where}.messages")
    if not messages:
        raise UsageError(f"{where}.messages: must not be empty")
    return Item(
        id=_name(values["id"], f"{where}.id"),
        task=_name(values["task"], f"{where}.task"),
        messages=messages,
        tools=_objects(values.get("tools") or [], f"{where}.tools"),
        thinking=thinking,
        max_new=max_new,
        grader=parse_grade(values["grade"], f"{where}.grade"),
        reference=values.get("reference"),
        digest=_digest(values),
    )


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: {value!r} must be a text that is not empty")
    return value


def _objects(value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, Sequence) or not all(isinstance(item, dict) for item in value):
        raise UsageError(f"{where}: must be a list of objects")
    return tuple(value)


def _digest(values: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in values.items() if name != "reference"}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
