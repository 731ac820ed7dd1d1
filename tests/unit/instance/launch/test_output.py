"""Lines of several processes in one stream."""

import fcntl
import os
from collections.abc import Iterator

import pytest

from trainyard.instance.launch.output import STALE_S, TAIL_BYTES, OutputMerger, OutputStream


class Scene:
    """Two processes that write, and what comes of it."""

    def __init__(self, *prefixes: bytes) -> None:
        self.shown, target = os.pipe()
        pipes = [os.pipe() for _ in range(2)]
        self.writers = [writer for _, writer in pipes]
        self.streams = [
            OutputStream(reader, prefix=prefix, tail=bytearray())
            for (reader, _), prefix in zip(pipes, prefixes or (b"", b""), strict=True)
        ]
        self.merger = OutputMerger(target)
        self._opened = [self.shown, target, *self.writers, *(stream.reader for stream in self.streams)]

    def write(self, number: int, data: bytes, now: float = 0.0) -> None:
        os.write(self.writers[number], data)
        self.merger.forward(self.streams[number], now)

    def read(self) -> bytes:
        os.set_blocking(self.shown, False)
        try:
            return os.read(self.shown, 1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_a_line_is_shown_when_it_is_whole(scene: Scene) -> None:
    scene.write(0, b"one ")
    scene.write(1, b"two\n")
    assert scene.read() == b"two\n"
    scene.write(0, b"line\nand the next")
    assert scene.read() == b"one line\n"


def test_an_unfinished_line_is_shown_after_a_moment_and_stays_one_line(scene: Scene) -> None:
    scene.write(0, b"50 %", now=10.0)
    scene.merger.flush_stale(scene.streams[0], 10.0 + STALE_S / 2)
    assert scene.read() == b""
    scene.merger.flush_stale(scene.streams[0], 10.0 + STALE_S)
    scene.write(0, b" 60 %\n")
    assert scene.read() == b"50 % 60 %\n"
    scene.write(0, b"70 %", now=20.0)
    scene.merger.flush(scene.streams[0])
    scene.write(1, b"other\n")
    assert scene.read() == b"70 %\nother\n"


def test_each_line_has_the_prefix_of_its_process() -> None:
    scene = Scene(b"[0]", b"[1]")
    scene.write(0, b"a\nb\n")
    scene.write(1, b"c\n")
    assert scene.read() == b"[0]a\n[0]b\n[1]c\n"
    scene.close()


def test_the_end_of_what_was_written_is_kept(scene: Scene) -> None:
    scene.write(0, b"x" * 30_000 + b"\nthe end\n")
    scene.merger.drain(scene.streams[0], 0.0)
    assert len(scene.streams[0].tail) == TAIL_BYTES
    assert scene.streams[0].tail.endswith(b"\nthe end\n")


def test_draining_takes_all_even_where_it_is_always_the_same(scene: Scene) -> None:
    fcntl.fcntl(scene.writers[0], fcntl.F_SETPIPE_SZ, 1 << 20)
    fcntl.fcntl(scene.shown, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(scene.writers[0], b"x\n" * 200_000)
    scene.merger.drain(scene.streams[0], 0.0)
    assert scene.read() == b"x\n" * 200_000


def test_draining_shows_what_has_no_end(scene: Scene) -> None:
    os.write(scene.writers[0], b"first\nlast words")
    scene.merger.drain(scene.streams[0], 0.0)
    assert scene.read() == b"first\nlast words"
    scene.merger.write_line("[trainyard] started again")
    assert scene.read() == b"\n[trainyard] started again\n"
