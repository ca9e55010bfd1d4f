"""`ninfer cluster serve tiny` as a process, with real Ray, and the load that tests put on it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from ninfer.server.serve import listen

START_SECONDS = 180.0
# A request that takes longer counts as hung; answers of tiny take a second.
HUNG_SECONDS = 240.0
TOKENS = 16
QUESTIONS = 4


@dataclass
class RayCluster:
    """A cluster that serves."""

    url: str
    process: subprocess.Popen[bytes]

    @cached_property
    def client(self) -> httpx.Client:
        """One for all questions, since to make one costs more than to ask."""
        return httpx.Client(base_url=self.url, timeout=60)

    def replicas(self) -> list[dict[str, Any]]:
        """What the gateway knows of each replica."""
        found: list[dict[str, Any]] = self.client.get("/replicas").json()["replicas"]
        return found

    def serving(self) -> list[dict[str, Any]]:
        """The replicas that requests go to."""
        return [replica for replica in self.replicas() if replica["serves"]]


@contextmanager
def ray_cluster(folder: Path, *options: str, artifact: str = "tiny") -> Iterator[RayCluster]:
    """Serve until the block ends; the output is in `folder`."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    listener.close()
    command = [sys.executable, "-m", "ninfer", "cluster", "serve", artifact]
    given = ["--port", str(port), "--device", "cpu", "--drain-s", "20", *options]
    with (folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen(
            command + given,
            stdout=log,
            stderr=subprocess.STDOUT,
            # One core each, whatever the machine has: two replicas and Ray share it.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        cluster = RayCluster(f"http://127.0.0.1:{port}", process)
        try:
            _await_health(cluster, folder / "cluster.log")
            yield cluster
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(120)
            finally:
                process.kill()


def _await_health(cluster: RayCluster, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert cluster.process.poll() is None, log.read_text()[-3000:]
        try:
            if cluster.client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


@dataclass
class Tally:
    """How requests ended."""

    whole: int = 0
    broken: int = 0  # streams that ended by the protocol's error event
    refused: int = 0  # whole answers that are an error
    wrong: list[str] = field(default_factory=list)  # lost, doubled, hung


class Load:
    """Clients that ask the same questions over and over; every answer has to be the known one."""

    def __init__(self, url: str, clients: int) -> None:
        self._url = url
        self._clients = clients
        self._known: dict[int, str] = {}
        self._ending = asyncio.Event()
        self.tally = Tally()

    async def learn(self, client: httpx.AsyncClient) -> None:
        """What each question is answered with."""
        for number in range(QUESTIONS):
            reply = await client.post("/v1/chat/completions", json=_question(number))
            self._known[number] = _text(reply.json()["choices"][0]["message"])

    def end(self) -> None:
        """Clients stop after the request they are at."""
        self._ending.set()

    async def run(self) -> None:
        """Until `end`."""
        async with httpx.AsyncClient(base_url=self._url, timeout=HUNG_SECONDS) as client:
            await self.learn(client)
            await asyncio.gather(*(self._ask(client, n) for n in range(self._clients)))

    async def _ask(self, client: httpx.AsyncClient, number: int) -> None:
        while not self._ending.is_set():
            number += 1
            ask = self._streamed if number // QUESTIONS % 2 else self._plain
            try:
                async with asyncio.timeout(HUNG_SECONDS):
                    await ask(client, number % QUESTIONS)
            except (TimeoutError, httpx.HTTPError, ValueError) as error:
                self.tally.wrong.append(f"{type(error).__name__}: {error}")

    async def _plain(self, client: httpx.AsyncClient, number: int) -> None:
        reply = await client.post("/v1/chat/completions", json=_question(number))
        if reply.status_code != 200:
            self.tally.refused += 1
            self.tally.wrong.append(f"{reply.status_code} {reply.text[:200]}")
        elif _text(reply.json()["choices"][0]["message"]) != self._known[number]:
            self.tally.wrong.append(f"another answer: {reply.text[:300]}")
        else:
            self.tally.whole += 1

    async def _streamed(self, client: httpx.AsyncClient, number: int) -> None:
        body = {**_question(number), "stream": True}
        said, ended, failed = "", False, False
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            if reply.status_code != 200:
                self.tally.refused += 1
                self.tally.wrong.append(f"{reply.status_code} {(await reply.aread())[:200]!r}")
                return
            async for event in _events(reply):
                assert not ended, "something came behind the end"
                if event == "[DONE]":
                    ended = True
                elif "error" in event:
                    failed = True
                elif event["choices"]:
                    said += _text(event["choices"][0]["delta"])
        known = self._known[number]
        if not ended:
            self.tally.wrong.append(f"a stream without an end: {said!r}")
        elif failed and known.startswith(said):
            self.tally.broken += 1
        elif not failed and said == known:
            self.tally.whole += 1
        else:
            self.tally.wrong.append(f"{said!r} instead of {known!r}, failed: {failed}")


async def _events(reply: httpx.Response) -> AsyncIterator[Any]:
    async for line in reply.aiter_lines():
        if line.startswith("data: "):
            text = line.removeprefix("data: ")
            yield text if text == "[DONE]" else json.loads(text)


def _question(number: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"Tell me of the number {number} at length."}],
        "temperature": 0,
        "max_tokens": TOKENS,
        "min_tokens": TOKENS,
        "ignore_eos": True,
    }


def _text(said: dict[str, Any]) -> str:
    return (said.get("reasoning_content") or "") + (said.get("content") or "")
