"""Figures of a real cluster for docs/notes/cluster.md: `python -m tests.cluster.cluster_figures`.

One replica of `tiny` against two, affinity against random routing, the simulator against both. Run
it on an idle machine: the figures are of whatever else runs as well.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from ninfer.cluster.choice import AFFINITY, RANDOM
from ninfer.cluster.costs import Costs
from ninfer.cluster.measure import measure
from ninfer.cluster.options import MeasureOptions
from ninfer.cluster.simulate import simulate
from ninfer.cluster.trace import Trace
from tests.cluster.ray_cluster import RayCluster, ray_cluster

ANSWER = 16
PLACES = 4


@dataclass(frozen=True)
class Run:
    """One run of conversations: seconds, prompt tokens by conversation and turn, hits."""

    seconds: float
    prompts: list[list[int]]
    hit_rate: float

    @property
    def speed(self) -> float:
        """Tokens of answers a second."""
        return sum(map(len, self.prompts)) * ANSWER / self.seconds

    def trace(self) -> Trace:
        """The same conversations for the simulator: all begin at once, turns follow each other."""
        rows = [(n, tokens) for n, turns in enumerate(self.prompts) for tokens in turns]
        owner, prompts = (np.array(column) for column in zip(*rows, strict=True))
        return Trace(np.zeros(len(rows)), owner, prompts, np.full(len(rows), ANSWER))


async def converse(
    cluster: RayCluster,
    conversations: int,
    turns: int,
    clients: int,
    salt: str,
    answer_tokens: int = ANSWER,
) -> Run:
    """Conversations of so many turns, at most `clients` at once."""
    before = hits(cluster)
    places = asyncio.Semaphore(clients)
    async with httpx.AsyncClient(base_url=cluster.url, timeout=600) as client:
        began = time.perf_counter()

        async def one(number: int) -> list[int]:
            messages: list[dict[str, Any]] = []
            tokens = []
            async with places:
                for turn in range(turns):
                    words = " ".join(f"{salt} {number} {turn} {n}" for n in range(12))
                    messages.append({"role": "user", "content": words})
                    body = {"messages": messages, "max_tokens": answer_tokens, "temperature": 0}
                    more = {"min_tokens": answer_tokens, "ignore_eos": True}
                    reply = await client.post("/v1/chat/completions", json={**body, **more})
                    answer = reply.raise_for_status().json()
                    messages.append(answer["choices"][0]["message"])
                    tokens.append(answer["usage"]["prompt_tokens"])
            return tokens

        prompts = await asyncio.gather(*(one(number) for number in range(conversations)))
        seconds = time.perf_counter() - began
    asked, reused = (now - then for now, then in zip(hits(cluster), before, strict=True))
    return Run(seconds, list(prompts), reused / asked)


def hits(cluster: RayCluster) -> tuple[float, float]:
    """Tokens of prompts asked for, and those reused, of all replicas."""
    replicas = cluster.replicas()
    asked = sum(each["prefix_asked_tokens"] for each in replicas)
    return asked, sum(each["prefix_reused_tokens"] for each in replicas)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16, help="conversations of a timed run")
    asked = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp())
    places = ("--max-concurrency", str(PLACES))
    with ray_cluster(folder, "--replicas", "1", *places) as one:
        costs = asyncio.run(measure(one.url, MeasureOptions(prompt_tokens=512, answer_tokens=24)))
        say(costs.written())
        timed("1 replica", one, costs, 1, asked)
    with ray_cluster(folder, "--replicas", "2", *places) as two:
        timed("2 replicas", two, costs, 2, asked)
        kept(AFFINITY, two, asked.conversations)
    with ray_cluster(folder, "--replicas", "2", "--routing", RANDOM, *places) as two:
        kept(RANDOM, two, asked.conversations)


def say(text: str) -> None:
    """A line, at once."""
    sys.stdout.write(text.rstrip() + "\n")
    sys.stdout.flush()


def timed(name: str, cluster: RayCluster, costs: Costs, count: int, asked: Any) -> None:
    """Conversations that all begin at once: measured, and simulated."""
    asyncio.run(converse(cluster, 2 * count, 1, 8, "warm"))
    runs = [
        asyncio.run(converse(cluster, asked.batch, 4, asked.batch, f"r{n}"))
        for n in range(asked.runs)
    ]
    seconds = [run.seconds for run in runs]
    played = [simulate(run.trace(), costs, count, AFFINITY).seconds for run in runs]
    found = {
        "what": name,
        "tokens_per_second": statistics.median(run.speed for run in runs),
        "measured_s": seconds,
        "simulated_s": played,
        "hit_rate": statistics.median(run.hit_rate for run in runs),
    }
    say(json.dumps(found))


def kept(routing: str, cluster: RayCluster, conversations: int) -> None:
    """What is reused of prompts in a long trace."""
    run = asyncio.run(converse(cluster, conversations, 3, 2 * PLACES, "long", 4))
    say(json.dumps({"routing": routing, "hit_rate": run.hit_rate, "s": run.seconds}))


if __name__ == "__main__":
    main()
