"""What a running server costs: prompts of several lengths, answers at several loads, timed by HTTP.

Completions of random token ids: nothing of them is kept from before, and any tokenizer has them.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass
from typing import Any, Final

import httpx

from ninfer.cluster.costs import Costs, line
from ninfer.cluster.options import MeasureOptions
from ninfer.errors import UsageError

_LENGTHS: Final = (0.125, 0.25, 0.5, 1.0)  # of the longest prompt
_IDS: Final = (100, 200)  # plain tokens of any vocabulary that we serve


@dataclass(frozen=True, slots=True)
class _Timed:
    """Seconds of one streamed answer: to its first token, and from that to its end."""

    first: float
    rest: float


async def measure(url: str, options: MeasureOptions) -> Costs:
    """Time a server that does nothing else. Raises UsageError where it does not answer."""
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    base = url.rstrip("/").removesuffix("/v1")
    try:
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=600) as client:
            return await _measure(_Server(client, options), base)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        text = str(error) or type(error).__name__
        raise UsageError(f"{url}: {text}; give the address of a running server") from None


async def _measure(server: "_Server", base: str) -> Costs:
    facts = await server.facts()
    places = facts["ninfer_max_concurrency"]
    longest = server.options.prompt_tokens
    await server.ask(longest // 8, 8)  # what the first request pays alone
    prompts, steps = [], []
    for _ in range(server.options.rounds):
        for share in _LENGTHS:
            tokens = int(longest * share)
            prompts.append((float(tokens), (await server.ask(tokens, 8)).first))
        for count in _counts(places):
            steps.append((float(count), await server.step(count, longest // 8)))
    prompt_seconds, token_seconds = line(prompts)
    step_seconds, sequence_seconds = line(steps)
    return Costs(
        prompt_seconds,
        token_seconds,
        step_seconds,
        sequence_seconds,
        places,
        facts["ninfer_kv_capacity_tokens"],
        f"{base}, {time.strftime('%Y-%m-%d', time.gmtime())}, {server.options.rounds} rounds",
    )


def _counts(places: int) -> list[int]:
    """1, 2, 4 and so on, and all places."""
    return sorted({min(places, 2**power) for power in range(places.bit_length() + 1)})


class _Server:
    """One server under measurement."""

    def __init__(self, client: httpx.AsyncClient, options: MeasureOptions) -> None:
        self._client = client
        self._random = random.Random(0)
        self.options: Final = options

    async def facts(self) -> dict[str, int]:
        """Places, and tokens of the KV cache, from the server's metrics."""
        reply = (await self._client.get("/metrics")).raise_for_status()
        found = {}
        for text in reply.text.splitlines():
            name, _, value = text.rpartition(" ")
            if name.partition("{")[0] in (
                "ninfer_max_concurrency",
                "ninfer_kv_capacity_tokens",
            ):
                found[name.partition("{")[0]] = int(float(value))
        if len(found) != 2:
            raise UsageError("the server has no ninfer metrics; measure a server of ninfer")
        return found

    async def ask(self, prompt: int, answer: int) -> _Timed:
        """One answer of exactly `answer` tokens to a prompt of exactly `prompt`."""
        ids = [self._random.randrange(*_IDS) for _ in range(prompt)]
        body: dict[str, Any] = {
            "prompt": ids,
            "max_tokens": answer,
            "min_tokens": answer,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
        }
        began, first, tokens = time.perf_counter(), 0.0, 0
        async with self._client.stream("POST", "/v1/completions", json=body) as reply:
            if reply.status_code != 200:
                text = (await reply.aread())[:300].decode(errors="replace")
                raise UsageError(f"the server answers {reply.status_code}: {text}")
            async for text in reply.aiter_lines():
                if not text.startswith("data: {"):
                    continue
                event = json.loads(text.removeprefix("data: "))
                if event.get("error"):
                    raise UsageError(f"the server broke off: {event['error'].get('message')}")
                first = first or time.perf_counter() - began
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        if tokens != answer:
            raise UsageError(f"an answer has {tokens} tokens instead of {answer}; is it ninfer?")
        return _Timed(first, time.perf_counter() - began - first)

    async def step(self, count: int, prompt: int) -> float:
        """Seconds of a step with `count` sequences, prompts taken out by the time they begin."""
        answer = self.options.answer_tokens
        timed = await asyncio.gather(*(self.ask(prompt, answer) for _ in range(count)))
        # While the last prompt is computed the first answers wait: the shortest rest has no wait.
        return min(each.rest for each in timed) / (answer - 1)
