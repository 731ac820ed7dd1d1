import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from threading import Event

import pytest

from tests.unit.server.control.tuning.studies import METRIC, Studies
from trainyard.foundation.clock import to_micros, utc_now
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.tuning import TrialStatus, TuningStatus
from trainyard.link.contract import FrameKind
from trainyard.server.control.controller import Controller, WakeSignal
from trainyard.server.control.instances.kind import InstanceJobKind
from trainyard.server.control.tuning.contract import Question, Suggestion
from trainyard.server.control.tuning.kind import TuningJobKind
from trainyard.testing.engines import SimulatedAgent, complete

Scene = Callable[[WakeSignal], Awaitable[None]]


class Scripted:
    """An advisor whose answers a test knows; the real one is asked in tests of its own."""

    def __init__(self, *, refusals: int = 0, cpu_s: float | None = None) -> None:
        self.asked: list[Question] = []
        self._cpu_s = cpu_s
        self.gate = Event()
        self.gate.set()
        self._refusals = refusals

    def suggest(self, question: Question) -> Suggestion | None:
        self.asked.append(question)
        assert self.gate.wait(60), "a test opens the gate"
        if self._refusals:
            self._refusals -= 1
            raise Unavailable("Not now.")
        return Suggestion("", {"lr": f"0.{question.number}"}, self._cpu_s)


def play(studies: Studies, scene: Scene, *, advisor: Scripted) -> None:
    """Run the loops of training and tuning jobs while a scene goes on, and close them after."""

    async def run() -> None:
        signal = WakeSignal()
        training = Controller(InstanceJobKind([replace(studies.bench.work, clock=utc_now)]), signal)
        work = replace(studies.work, clock=utc_now, wake=signal.send)
        tuning = Controller(TuningJobKind(work, advisor), signal)
        running = [asyncio.create_task(training.run()), asyncio.create_task(tuning.run())]
        try:
            await asyncio.wait_for(scene(signal), 60)
        finally:
            tuning.close()
            training.close()
            await asyncio.gather(*running)

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def measured(agent: SimulatedAgent) -> None:
    """Play a trial that reports an objective and completes."""
    now_us = to_micros(utc_now())
    agent.report(FrameKind.METRIC, name=METRIC, value=0.5, at_us=now_us, count=1)
    complete(agent)


def begin(studies: Studies, *, trials: int = 4) -> str:
    limits = {"MaxNumberOfTrainingJobs": trials, "MaxParallelTrainingJobs": max(1, trials // 2)}
    return studies.request(ResourceLimits=limits)


def test_a_study_comes_to_its_end_with_as_many_trials_as_were_asked_for(studies: Studies) -> None:
    studies.bench.engine.role = measured
    advisor = Scripted()

    async def scene(signal: WakeSignal) -> None:
        signal.send(await asyncio.to_thread(begin, studies))
        await until(lambda: studies.job().status is TuningStatus.COMPLETED)

    play(studies, scene, advisor=advisor)
    trials = studies.trials()
    assert [trial.values for trial in trials] == [{"lr": f"0.{number}"} for number in (1, 2, 3, 4)]
    assert {trial.status for trial in trials} == {TrialStatus.COMPLETED}
    assert numbers(advisor.asked)[-1] == 4


def numbers(asked: Sequence[Question]) -> list[int]:
    return [question.number for question in asked]


def test_a_strategy_that_cannot_answer_now_is_asked_again(studies: Studies) -> None:
    studies.bench.engine.role = measured
    advisor = Scripted(refusals=1)

    async def scene(signal: WakeSignal) -> None:
        signal.send(await asyncio.to_thread(begin, studies))
        await until(lambda: studies.job().status is TuningStatus.COMPLETED)

    play(studies, scene, advisor=advisor)
    assert numbers(advisor.asked)[:2] == [1, 1]
    assert len(studies.trials()) == 4


def test_a_strategy_that_thinks_for_long_keeps_nobody_from_stopping_a_study(studies: Studies) -> None:
    advisor = Scripted()
    advisor.gate.clear()

    async def scene(signal: WakeSignal) -> None:
        signal.send(await asyncio.to_thread(begin, studies))
        await until(lambda: len(advisor.asked) == 1)
        await asyncio.to_thread(stop, studies)
        signal.send(studies.resource().id)
        await until(lambda: studies.job().status is TuningStatus.STOPPED)
        advisor.gate.set()

    play(studies, scene, advisor=advisor)
    assert studies.trials() == []


def stop(studies: Studies) -> None:
    studies.bench.anna("sagemaker", "StopHyperParameterTuningJob", HyperParameterTuningJobName="search")


def test_the_next_trial_is_thought_of_while_the_slots_are_full(studies: Studies) -> None:
    advisor = Scripted()

    async def scene(signal: WakeSignal) -> None:
        signal.send(await asyncio.to_thread(begin, studies))
        await until(lambda: numbers(advisor.asked) == [1, 2, 3])
        await until(lambda: [trial.status for trial in studies.trials()] == [TrialStatus.IN_PROGRESS] * 2)

    play(studies, scene, advisor=advisor)
    pending = advisor.asked[-1].trials
    assert [trial.number for trial in pending] == [1, 2]
    assert not any(trial.has_ended for trial in pending)


@pytest.mark.parametrize(("cpu_s", "asked"), [(0.0, [1, 2, 2]), (60.0, [1, 2])], ids=["quick", "slow"])
def test_a_fast_strategy_is_asked_again_when_a_result_arrives(studies: Studies, cpu_s: float, asked: list[int]) -> None:
    advisor = Scripted(cpu_s=cpu_s)

    async def scene(signal: WakeSignal) -> None:
        signal.send(await asyncio.to_thread(begin, studies, trials=2))
        await until(lambda: numbers(advisor.asked) == [1, 2] and studies.trials()[0].status is TrialStatus.IN_PROGRESS)
        await until(lambda: studies.training_job().secondary is SecondaryStatus.TRAINING)
        studies.bench.watch.now = utc_now() + timedelta(seconds=1)  # by which agents tell when they end
        studies.bench.agent(studies.trials()[0].job).end()
        await until(lambda: len(studies.trials()) == 2)

    play(studies, scene, advisor=advisor)
    assert numbers(advisor.asked) == asked
    assert advisor.asked[-1].trials[0].has_ended is (cpu_s == 0)


def test_a_closed_loop_holds_nothing_and_another_continues(studies: Studies) -> None:
    async def first(signal: WakeSignal) -> None:
        signal.send(await asyncio.to_thread(begin, studies))
        await until(lambda: len(studies.trials()) == 2)

    play(studies, first, advisor=Scripted())
    taken = replace(studies.work, clock=utc_now, worker="another").claim(studies.resource().id)
    assert taken is not None
    assert sorted(taken.rows) == [1, 2]
