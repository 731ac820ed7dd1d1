"""Streams to browsers end when the yard stops."""

import asyncio
from collections.abc import AsyncIterable

from trainyard.server.dashboard.events import Events, OpenStreams, ServerEvent


async def count() -> Events:
    for number in range(3):
        yield ServerEvent("number", number)
    await asyncio.Event().wait()


async def is_allowed() -> bool:
    return True


async def rest_of(chunks: AsyncIterable[object]) -> list[object]:
    return [chunk async for chunk in chunks]


def test_a_stream_that_is_sending_when_the_yard_stops_sends_no_more() -> None:
    async def send() -> list[object]:
        streams = OpenStreams()
        chunks = aiter(streams.answer(count(), is_allowed=is_allowed).body_iterator)
        sent = [await anext(chunks), await anext(chunks)]
        assert sent[1] == "event: number\ndata: 0\n\n"
        streams.close()
        return await asyncio.wait_for(rest_of(chunks), timeout=30)

    assert asyncio.run(send()) == []


def test_a_stream_that_begins_when_the_yard_stops_ends_at_once() -> None:
    async def send() -> list[object]:
        streams = OpenStreams()
        streams.close()
        body = streams.answer(count(), is_allowed=is_allowed).body_iterator
        return await asyncio.wait_for(rest_of(body), timeout=30)

    assert asyncio.run(send()) == ["retry: 1000\n\n"]
