"""The contract of `Engine`, as one suite that every engine must pass."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from trainyard.engines.contract import AttemptRef, Engine, InstanceRef
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound
from trainyard.link.contract import CommandKind, Frame, FrameKind
from trainyard.testing.engines.samples import ENDLESS, FAILING, Surroundings, attempt_specs
from trainyard.testing.eventually import eventually


class EngineContract:
    """Subclass it in a test module where three fixtures give

    - `engine`: the engine under test;
    - `reopen`: makes it anew, as a yard does that was killed and started again;
    - `surroundings`: where its instances find an object store with the bucket `samples.BUCKET`.
    """

    def test_there_is_room_for_at_least_one_instance(self, engine: Engine) -> None:
        capacity = engine.capacity()

        assert capacity.slots >= 1
        assert capacity.cpus > 0
        assert capacity.memory_bytes > 0

    def test_an_instance_reports_until_it_ends_and_is_gone_then(
        self, engine: Engine, surroundings: Surroundings
    ) -> None:
        (instance,) = engine.start(attempt_specs(surroundings))

        frames = reports_to_the_end(engine, instance)

        assert frames[-1].payload["outcome"] == "completed"
        assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))
        eventually(lambda: not engine.is_alive(instance))

    def test_a_program_that_fails_ends_its_instance_as_failed(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(attempt_specs(surroundings, FAILING))

        frames = reports_to_the_end(engine, instance)

        assert frames[-1].payload["outcome"] == "failed"
        assert frames[-1].payload["reason"]

    def test_all_instances_of_an_attempt_run(self, engine: Engine, surroundings: Surroundings) -> None:
        instances = engine.start(attempt_specs(surroundings, count=2))

        assert [instance.name for instance in instances] == ["algo-1", "algo-2"]
        ends = [reports_to_the_end(engine, instance)[-1] for instance in instances]
        assert [end.payload["outcome"] for end in ends] == ["completed", "completed"]

    def test_reading_goes_on_where_the_last_read_ended_and_takes_nothing_away(
        self, engine: Engine, surroundings: Surroundings
    ) -> None:
        (instance,) = engine.start(attempt_specs(surroundings))
        frames = reports_to_the_end(engine, instance)

        first = engine.reports(instance, 0)

        assert list(first.frames) == frames
        assert engine.reports(instance, 0) == first
        assert engine.reports(instance, first.next_offset).frames == ()
        assert engine.reports(instance, first.next_offset).next_offset == first.next_offset

    def test_a_running_instance_stops_when_it_is_told(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(attempt_specs(surroundings, ENDLESS))
        wait_for_training(engine, instance)
        assert engine.is_alive(instance)

        engine.command(instance, CommandKind.STOP, {"reason": "user"})

        assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "stopped"
        eventually(lambda: not engine.is_alive(instance))

    def test_commands_are_numbered_in_order(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(attempt_specs(surroundings))

        numbers = [engine.command(instance, CommandKind.STOP).number for _ in range(3)]

        assert numbers == [1, 2, 3]

    def test_an_instance_never_started_is_not_alive_and_has_no_reports(self, engine: Engine) -> None:
        unknown = InstanceRef(AttemptRef("nothing", 1), "algo-1")

        assert not engine.is_alive(unknown)
        assert engine.reports(unknown, 0).frames == ()
        with pytest.raises(NotFound):
            engine.command(unknown, CommandKind.STOP)

    def test_starting_an_attempt_again_starts_nothing_twice(self, engine: Engine, surroundings: Surroundings) -> None:
        specs = attempt_specs(surroundings, ENDLESS, count=2)
        instances = engine.start(specs)
        for instance in instances:
            wait_for_training(engine, instance)
        before = [engine.reports(instance, 0) for instance in instances]

        assert engine.start(specs) == instances

        assert [engine.reports(instance, 0) for instance in instances] == before
        engine.end(instances[0].attempt)

    def test_an_instance_that_ended_is_not_started_again(self, engine: Engine, surroundings: Surroundings) -> None:
        specs = attempt_specs(surroundings)
        (instance,) = engine.start(specs)
        frames = reports_to_the_end(engine, instance)
        eventually(lambda: not engine.is_alive(instance))

        engine.start(specs)

        assert not engine.is_alive(instance)
        assert list(engine.reports(instance, 0).frames) == frames

    def test_only_the_instances_of_one_attempt_are_started_together(
        self, engine: Engine, surroundings: Surroundings
    ) -> None:
        with pytest.raises(InvalidRequest):
            engine.start([*attempt_specs(surroundings), *attempt_specs(surroundings)])
        with pytest.raises(InvalidRequest):
            engine.start([])

    def test_an_engine_isolates_the_jobs_that_it_says_it_can(self, engine: Engine, surroundings: Surroundings) -> None:
        why = engine.why_not_isolated(2)
        if why:
            pytest.skip(f"no job can be isolated here, because {why}")

        instances = engine.start([replace(each, is_isolated=True) for each in attempt_specs(surroundings, count=2)])

        for instance in instances:
            assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"

    def test_ending_an_attempt_leaves_nothing_running_but_the_reports(
        self, engine: Engine, surroundings: Surroundings
    ) -> None:
        instances = engine.start(attempt_specs(surroundings, ENDLESS, count=2))
        for instance in instances:
            wait_for_training(engine, instance)

        engine.end(instances[0].attempt)

        assert not any(engine.is_alive(instance) for instance in instances)
        for instance in instances:
            frames = engine.reports(instance, 0).frames
            assert frames
            assert frames[-1].kind is not FrameKind.ENDED

    def test_an_attempt_that_was_ended_never_starts(self, engine: Engine, surroundings: Surroundings) -> None:
        specs = attempt_specs(surroundings)
        engine.end(AttemptRef(specs[0].job_id, 1))

        with pytest.raises(Conflict):
            engine.start(specs)

        assert not engine.is_alive(InstanceRef(AttemptRef(specs[0].job_id, 1), "algo-1"))

    def test_ending_again_is_fine(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(attempt_specs(surroundings, ENDLESS))

        engine.end(instance.attempt)
        engine.end(instance.attempt)

        assert not engine.is_alive(instance)

    def test_another_attempt_starts_after_the_first_was_ended(self, engine: Engine, surroundings: Surroundings) -> None:
        (first,) = engine.start(attempt_specs(surroundings, ENDLESS, job_id="again"))
        engine.end(first.attempt)

        (second,) = engine.start(attempt_specs(surroundings, job_id="again", attempt=2))

        assert reports_to_the_end(engine, second)[-1].payload["outcome"] == "completed"

    def test_an_engine_made_anew_goes_on_with_what_runs(
        self, engine: Engine, reopen: Callable[[], Engine], surroundings: Surroundings
    ) -> None:
        specs = attempt_specs(surroundings, ENDLESS)
        (instance,) = engine.start(specs)
        wait_for_training(engine, instance)

        anew = reopen()

        assert anew.is_alive(instance)
        assert anew.start(specs) == (instance,)
        anew.command(instance, CommandKind.STOP, {"reason": "user"})
        assert reports_to_the_end(anew, instance)[-1].payload["outcome"] == "stopped"

    def test_an_engine_made_anew_ends_what_an_earlier_one_started(
        self, engine: Engine, reopen: Callable[[], Engine], surroundings: Surroundings
    ) -> None:
        (instance,) = engine.start(attempt_specs(surroundings, ENDLESS))
        anew = reopen()

        anew.end(instance.attempt)

        assert not anew.is_alive(instance)
        assert not engine.is_alive(instance)


def reports_to_the_end(engine: Engine, instance: InstanceRef) -> list[Frame]:
    """Every frame of an instance, once the last is there."""

    def all_frames() -> list[Frame]:
        frames = list(engine.reports(instance, 0).frames)
        lost = not engine.is_alive(instance) and not _has_ended(engine.reports(instance, 0).frames)
        assert not lost, f"{instance} was lost after {frames[-1:]}"
        return frames if _has_ended(frames) else []

    return eventually(all_frames)


def wait_for_training(engine: Engine, instance: InstanceRef) -> None:
    def trains() -> bool:
        statuses = [frame.payload["status"] for frame in engine.reports(instance, 0).frames if _is_status(frame)]
        return "Training" in statuses

    eventually(trains)


def _is_status(frame: Frame) -> bool:
    return frame.kind is FrameKind.STATUS


def _has_ended(frames: "list[Frame] | tuple[Frame, ...]") -> bool:
    return bool(frames) and frames[-1].kind is FrameKind.ENDED
