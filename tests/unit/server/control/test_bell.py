import asyncio
import threading

from trainyard.server.control.bell import Bell


def test_a_ring_from_another_thread_reaches_the_listener_on_its_loop() -> None:
    async def listen() -> list[str]:
        bell, heard, done = Bell(), list[str](), asyncio.Event()

        def hear(job_id: str) -> None:
            heard.append(job_id)
            done.set()

        bell.listen(hear)
        threading.Thread(target=bell.ring, args=("job-1",)).start()
        await asyncio.wait_for(done.wait(), 30)
        bell.silence()
        bell.ring("job-2")
        return heard

    assert asyncio.run(listen()) == ["job-1"]


def test_all_who_listen_hear_a_ring() -> None:
    async def listen() -> list[str]:
        bell, heard = Bell(), list[str]()
        bell.listen(lambda job_id: heard.append(f"first {job_id}"))
        bell.listen(lambda job_id: heard.append(f"second {job_id}"))
        bell.ring("job-1")
        while len(heard) < 2:
            await asyncio.sleep(0)
        return heard

    assert asyncio.run(listen()) == ["first job-1", "second job-1"]


def test_nobody_has_to_listen() -> None:
    Bell().ring("job-1")
