"""A scripted server under the page: models, metrics that move, and answers by what is asked."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from ninfer.server.page_routes import page_router

ANSWER = """## A short plan

1. Read the **prompt** in `chunks`
2. Draft, then verify:
   - accept what the target draws
   - roll the cursor back

| step | tokens |
| --- | ---: |
| prefill | 1,024 |
| decode | 4 |

```python
for token in answer:
    print(token, end="")
```

See [the notes](https://example.org/notes) and <script>alert(1)</script>."""
THOUGHT = "They ask for a plan. I should keep it **short**, and show the order of the steps."


class PageServer:
    """State that the tests look at and change."""

    def __init__(self) -> None:
        self.key = ""
        self.down = False
        self.more_metrics = ""
        self.delay = 0.01
        self.requests: list[dict[str, Any]] = []
        self.cancelled = threading.Event()
        self.started = time.monotonic()
        self.root = ""
        self.app = FastAPI()
        self.app.include_router(page_router())
        for path, method, handler in (
            ("/v1/models", "GET", self._models),
            ("/v1/chat/completions", "POST", self._chat),
            ("/metrics", "GET", self._metrics),
            ("/health", "GET", self._health),
        ):
            self.app.add_api_route(path, handler, methods=[method])

    def _refusal(self, request: Request) -> Response | None:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "wrong key"}}, 401)
        return None

    async def _health(self) -> Response:
        return JSONResponse({"status": "ok"}, 503 if self.down else 200)

    async def _models(self, request: Request) -> Response:
        data = [{"id": "qwen3.6-27b", "max_model_len": 65536}]
        return self._refusal(request) or JSONResponse({"object": "list", "data": data})

    async def _metrics(self, request: Request) -> Response:
        text = metrics_text(time.monotonic() - self.started) + self.more_metrics
        return self._refusal(request) or PlainTextResponse(text)

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        refusal = self._refusal(request)
        return refusal or StreamingResponse(self._stream(body), media_type="text/event-stream")

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        try:
            for chunk in script(body):
                await asyncio.sleep(self.delay)
                yield f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        yield b"data: [DONE]\n\n"


def script(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Chunks of the answer to the last message."""
    last = body["messages"][-1]
    content = last["content"]
    text = content if isinstance(content, str) else content[-1]["text"]
    yield delta(role="assistant", content="")
    if text == "break":
        yield delta(content="half an ans")
        return
    if text == "fail":
        yield {"error": {"message": "the engine stalled"}}
        return
    if text == "endless":
        for number in range(10_000):
            yield delta(content=f"word{number} ")
    if body.get("tools") and last["role"] == "user":
        arguments = json.dumps({"city": "Zürich", "days": 2})
        yield delta(content="I look it up.")
        head = {"index": 0, "id": "call_1", "type": "function"}
        yield delta(tool_calls=[{**head, "function": {"name": "weather", "arguments": ""}}])
        for at in range(0, len(arguments), 7):
            piece = {"index": 0, "function": {"arguments": arguments[at : at + 7]}}
            yield delta(tool_calls=[piece])
        yield finish("tool_calls")
        return
    if body.get("chat_template_kwargs", {}).get("enable_thinking") is not False:
        for word in THOUGHT.split(" "):
            yield delta(reasoning_content=word + " ", reasoning=word + " ")
    said = f"The tool said: {text}" if last["role"] == "tool" else ANSWER
    if not isinstance(content, str):
        said = f"I see {sum(part['type'] == 'image_url' for part in content)} image(s)."
    for at in range(0, len(said), 6):
        yield delta(content=said[at : at + 6])
    yield finish("stop")
    yield {
        "choices": [],
        "usage": {
            "prompt_tokens": 1200,
            "completion_tokens": 180,
            "prompt_tokens_details": {"cached_tokens": 1024},
            "completion_tokens_details": {"reasoning_tokens": 21},
        },
    }


def delta(**members: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": None}]}


def finish(reason: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def metrics_text(seconds: float) -> str:
    """What a busy server would say after so many seconds: steady rates with a slow swing."""
    swing = abs(seconds % 40 - 20) / 20
    drafted, rounds = 300 * seconds, 100 * seconds
    lines = {
        "ninfer_generation_tokens_total": 180 * seconds + 90 * swing,
        "ninfer_prefill_tokens_total": 400 * seconds,
        "ninfer_prompt_tokens_total": 2000 * seconds,
        "ninfer_prompt_tokens_cached_total": 1600 * seconds,
        "ninfer_spec_decode_draft_tokens_total": drafted,
        "ninfer_spec_decode_accepted_tokens_total": drafted * 0.62,
        "ninfer_spec_decode_rounds_total": rounds,
        "ninfer_requests_running": round(2 + 4 * swing),
        "ninfer_requests_waiting": round(3 * swing),
        "ninfer_max_concurrency": 8,
        "ninfer_device_kv_used_pages": round(200 + 500 * swing),
        "ninfer_device_kv_capacity_pages": 1024,
        "ninfer_device_state_used_slots": 6,
        "ninfer_device_state_capacity_slots": 16,
    }
    text = "# HELP ninfer_x y\n" + "".join(f"{name} {value}\n" for name, value in lines.items())
    per_place = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    for place, share in enumerate((0.83, 0.61, 0.42)):
        text += f'{per_place}{{model_name="m",position="{place}"}} {rounds * share}\n'
    for verdict, share in (("usable", 0.9), ("loop", 0.06), ("output_limit", 0.04)):
        text += f'ninfer_answers_total{{verdict="{verdict}"}} {round(100 * seconds * share) + 1}\n'
    text += 'ninfer_structured_answers_total{kept="yes"} 11\n'
    text += 'ninfer_structured_answers_total{kept="no"} 1\n'
    counts = {"0.1": 3, "0.25": 21, "0.5": 44, "1.0": 52, "2.5": 55, "5.0": 56, "+Inf": 56}
    for bound, count in counts.items():
        text += f'ninfer_time_to_first_token_seconds_bucket{{le="{bound}"}} {count}\n'
    return text


@contextmanager
def served() -> Iterator[PageServer]:
    """The server on a free port of this machine, in a thread."""
    page = PageServer()
    config = uvicorn.Config(page.app, "127.0.0.1", 0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    page.root = f"http://127.0.0.1:{port}/"
    try:
        yield page
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)
