import pytest

from trainyard.instance.agent.data.progress import EVERY_S, DownloadProgress


class Stopped(Exception):
    pass


def test_progress_is_reported_now_and_then_and_only_when_there_is_some() -> None:
    now, reported, checks = [0.0], list[tuple[int, int]](), list[float]()
    progress = DownloadProgress(
        100,
        lambda done, total: reported.append((done, total)),
        check=lambda: checks.append(now[0]),
        clock=lambda: now[0],
    )
    for at, size_bytes in [(0.1, 10), (EVERY_S, 10), (EVERY_S + 0.1, 10), (2 * EVERY_S + 0.1, 0), (9 * EVERY_S, 90)]:
        now[0] = at
        progress.count(size_bytes)
        progress.check()
    assert reported == [(20, 100), (30, 100), (100, 100)], "no more than all"
    assert len(checks) == 5
    now[0] = 99 * EVERY_S
    progress.check()
    assert len(reported) == 3


def test_what_ends_a_download_also_ends_it_here() -> None:
    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        DownloadProgress(1, lambda *_: None, check=stop).check()
