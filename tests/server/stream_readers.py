"""A client in a process of its own: reads many streams at once and says what came when."""

import asyncio
import json
import sys
import time


async def read(port: int, body: bytes) -> tuple[int, list[float]]:
    """Bytes of content events, and when the first piece with a token came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    chunks, times, tail = 0, [], b""
    while True:
        piece = await reader.read(1 << 16)
        now = time.monotonic()
        chunks += piece.count(b'"content"')
        if b'"content"' in piece:
            times.append(now)
        tail = (tail + piece)[-64:]
        if not piece or b"[DONE]" in tail:
            break
    writer.close()
    return chunks, times


async def main(port: int, streams: int, tokens: int) -> None:
    """Write what came to stdout as JSON."""
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": tokens,
            "stream": True,
            "enable_thinking": False,
        }
    ).encode()
    start = time.monotonic()
    found = await asyncio.gather(*(read(port, body) for _ in range(streams)))
    seconds = time.monotonic() - start
    found_times = found[0][1]
    chunks = sum(count for count, _ in found)
    json.dump({"seconds": seconds, "chunks": chunks, "times": found_times}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
