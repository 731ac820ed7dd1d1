import threading

from trainyard.instance.hook.profiling import background
from trainyard.instance.hook.profiling.background import BackgroundWriter


def test_tasks_run_in_order_and_beside_the_caller() -> None:
    done: list[int] = []
    threads: set[int] = set()
    writer = BackgroundWriter(lambda _: None)

    def task(number: int) -> None:
        done.append(number)
        threads.add(threading.get_ident())

    for number in range(5):
        writer.submit(lambda number=number: task(number))  # type: ignore[misc]
    writer.close()
    assert done == list(range(5))
    assert threading.get_ident() not in threads
    assert "profiles" not in {thread.name for thread in threading.enumerate()}


def test_a_task_that_fails_is_reported_and_others_go_on() -> None:
    errors: list[Exception] = []
    done: list[str] = []
    writer = BackgroundWriter(errors.append)
    failure = OSError("full")

    def fail() -> None:
        raise failure

    writer.submit(fail)
    writer.submit(lambda: done.append("next"))
    writer.close()
    assert (errors, done) == ([failure], ["next"])


def test_tasks_that_come_too_fast_are_dropped_and_counted() -> None:
    is_free = threading.Event()
    writer = BackgroundWriter(lambda _: None)
    for _ in range(background._MAX_WAITING + 3):
        writer.submit(lambda: _wait(is_free))
    is_free.set()
    writer.close()
    assert writer.dropped == 3


def _wait(event: threading.Event) -> None:
    event.wait()
