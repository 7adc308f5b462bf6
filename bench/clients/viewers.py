"""Looks at the dashboard's live data, as open pages do: some web sockets with the stream `overview`.

Says `watching` when each has had a snapshot. Ends with its standard input, a pipe from the program that started it.
"""

import asyncio
import json
import sys
from dataclasses import dataclass

from websockets.asyncio.client import connect


@dataclass(frozen=True)
class ViewersTask:
    """Who is looked at, by how many."""

    http_ports: tuple[int, ...]
    """Of the gateways. Viewers are spread over them."""
    count: int
    streams: tuple[str, ...] = ("overview",)


async def view(port: int, streams: tuple[str, ...], seen: asyncio.Event) -> None:
    """Receive and decode for ever."""
    async with connect(f"ws://127.0.0.1:{port}/api/v1/live", max_size=1 << 26) as socket:
        for stream in streams:
            await socket.send(json.dumps({"type": "subscribe", "stream": stream}))
        async for text in socket:
            if json.loads(text)["type"] == "snapshot":
                seen.set()


async def main() -> None:
    """Start the viewers, and wait for the end."""
    task = ViewersTask(**json.loads(sys.argv[1]))
    seen = [asyncio.Event() for _ in range(task.count)]
    ports = task.http_ports
    viewers = [
        asyncio.create_task(view(ports[number % len(ports)], tuple(task.streams), event))
        for number, event in enumerate(seen)
    ]
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in seen)), 60)
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    for viewer in viewers:
        viewer.cancel()


if __name__ == "__main__":
    asyncio.run(main())
