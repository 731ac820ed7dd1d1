"""A relay to a local server that delays every request, as a network would."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

_CHUNK = 1 << 18


@contextmanager
def slow_way(url: str, delay_s: float) -> Iterator[str]:
    """Provide the URL of a relay to a server for the length of a block. Data from clients arrives with a delay."""
    loop = asyncio.new_event_loop()
    host, _, port = urlsplit(url).netloc.partition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_carry(reader, there[1], delay_s), _carry(there[0], writer, 0))

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, limit=_CHUNK))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay_s: float) -> None:
    try:
        while data := await source.read(_CHUNK):
            if delay_s:
                await asyncio.sleep(delay_s)
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass
    finally:
        target.close()
