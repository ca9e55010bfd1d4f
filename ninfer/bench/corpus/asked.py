"""What a stored response keeps of its request, and the command that repeats it."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ninfer.bench.corpus.plan import Ask


def kept_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request whose pictures and videos are replaced by their hashes."""
    return {**body, "messages": [_kept(message) for message in body["messages"]]}


def _kept(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return dict(message)
    return {**message, "content": [_kept_part(part) for part in content]}


def _kept_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    if kind not in ("image_url", "video_url"):
        return dict(part)
    url = part[kind]["url"]
    digest = hashlib.sha256(url.encode()).hexdigest()
    return {"type": kind, kind: {"url": f"sha256:{digest} of a data URL of {len(url)} characters"}}


def command_of(target: Sequence[str], ask: Ask, mode: str, more: Sequence[str] = ()) -> str:
    """The command line that asks this question again; `target` names whom, `more` other options."""
    words = ["ninfer", "bench", "corpus", *target, "--mode", mode, "--sampling", ask.sampling]
    words += ["--set", "tiny" if ask.fixture.name.startswith("tiny_") else "full"]
    words += ["--fixture", ask.fixture.name, "--seed", str(ask.seed)]
    if ask.max_new != ask.fixture.max_new:
        words += ["--max-new", str(ask.max_new)]
    return shlex.join([*words, *more, "--output", "again.jsonl"])
