"""The contract of `Engine`, as one suite that every engine must pass."""

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import cycle

import pytest

from trainyard.engines.contract import AttemptRef, Engine, InstanceRef
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, Unavailable
from trainyard.link.contract import INTERRUPTED, CommandKind, Frame, FrameKind, InstanceSpec
from trainyard.testing.engines.samples import ENDLESS, FAILING, QUICK, Surroundings, attempt_specs
from trainyard.testing.eventually import eventually


class EngineContract:
    """Subclass it in a test module where fixtures give

    - `engine`: the engine under test, which has been made ready;
    - `reopen`: makes it anew, as a yard does that was killed and started again;
    - `surroundings`: where its instances find an object store with the bucket `samples.BUCKET`;
    - `kill`: ends the agent of an instance by SIGKILL;
    - `node_of`: tells on which node an instance really runs, unless there is only one;
    - `take`: takes a node away for good with all that runs there, unless it is the yard's own machine.
    """

    @pytest.fixture
    def node_of(self, engine: Engine) -> Callable[[InstanceRef], str]:
        (node,) = engine.capacity().nodes
        return lambda _: node.name

    @pytest.fixture
    def take(self, engine: Engine) -> Callable[[str], None]:
        pytest.skip(f"the {engine.name} engine has no node but the yard's own machine, which nobody takes from it")

    def test_there_is_room_for_at_least_one_instance(self, engine: Engine) -> None:
        capacity = engine.capacity()

        assert capacity.slots >= 1
        assert capacity.cpus > 0
        assert capacity.memory_bytes > 0
        assert not capacity.obstacle

    def test_nodes_have_names_of_their_own_and_room(self, engine: Engine) -> None:
        nodes = engine.capacity().nodes

        assert len({node.name for node in nodes}) == len(nodes)
        assert all(node.slots >= 1 and node.cpus > 0 and node.memory_bytes > 0 for node in nodes)

    def test_what_an_engine_cannot_do_is_said_as_a_clause(self, engine: Engine) -> None:
        capabilities = engine.capabilities()
        clauses = [getattr(capabilities, each.name) for each in fields(capabilities)]

        for clause in (*clauses, engine.why_not_isolated(1), engine.why_not_isolated(2)):
            assert not clause or (clause[0].islower() and not clause.endswith("."))

    def test_an_engine_of_several_nodes_lets_a_job_have_several(self, engine: Engine) -> None:
        assert len(engine.capacity().nodes) == 1 or not engine.capabilities().several_nodes

    def test_an_instance_reports_until_it_ends_and_is_gone_then(
        self, engine: Engine, surroundings: Surroundings
    ) -> None:
        (instance,) = engine.start(specs_on(engine, surroundings))

        frames = reports_to_the_end(engine, instance)

        assert frames[-1].payload["outcome"] == "completed"
        assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))
        eventually(lambda: not engine.is_alive(instance))

    def test_a_program_that_fails_ends_its_instance_as_failed(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(specs_on(engine, surroundings, FAILING))

        frames = reports_to_the_end(engine, instance)

        assert frames[-1].payload["outcome"] == "failed"
        assert frames[-1].payload["reason"]

    def test_all_instances_of_an_attempt_run(self, engine: Engine, surroundings: Surroundings) -> None:
        instances = engine.start(specs_on(engine, surroundings, count=2))

        assert [instance.name for instance in instances] == ["algo-1", "algo-2"]
        ends = [reports_to_the_end(engine, instance)[-1] for instance in instances]
        assert [end.payload["outcome"] for end in ends] == ["completed", "completed"]

    def test_reading_goes_on_where_the_last_read_ended_and_takes_nothing_away(
        self, engine: Engine, surroundings: Surroundings
    ) -> None:
        (instance,) = engine.start(specs_on(engine, surroundings))
        frames = reports_to_the_end(engine, instance)

        first = engine.reports(instance, 0)

        assert list(first.frames) == frames
        assert engine.reports(instance, 0) == first
        assert engine.reports(instance, first.next_offset).frames == ()
        assert engine.reports(instance, first.next_offset).next_offset == first.next_offset

    def test_a_running_instance_stops_when_it_is_told(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(specs_on(engine, surroundings, ENDLESS))
        wait_for_training(engine, instance)
        assert engine.is_alive(instance)

        engine.command(instance, CommandKind.STOP, {"reason": "user"})

        assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "stopped"
        eventually(lambda: not engine.is_alive(instance))

    def test_an_instance_that_is_interrupted_says_so(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(specs_on(engine, surroundings, ENDLESS))
        wait_for_training(engine, instance)

        engine.command(instance, CommandKind.STOP, {"reason": INTERRUPTED})

        frames = reports_to_the_end(engine, instance)
        assert (frames[-1].payload["outcome"], frames[-1].payload["reason"]) == ("stopped", INTERRUPTED)
        assert FrameKind.ARTIFACT not in [frame.kind for frame in frames]
        eventually(lambda: not engine.is_alive(instance))
        assert not engine.was_taken(instance)

    def test_commands_are_numbered_in_order(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(specs_on(engine, surroundings))

        numbers = [engine.command(instance, CommandKind.STOP).number for _ in range(3)]

        assert numbers == [1, 2, 3]

    def test_an_instance_never_started_is_not_alive_and_has_no_reports(self, engine: Engine) -> None:
        unknown = InstanceRef(AttemptRef("nothing", 1), "algo-1")

        assert not engine.is_alive(unknown)
        assert engine.reports(unknown, 0).frames == ()
        with pytest.raises(NotFound):
            engine.command(unknown, CommandKind.STOP)

    def test_instances_run_on_the_nodes_that_they_were_placed_on(
        self, engine: Engine, surroundings: Surroundings, node_of: Callable[[InstanceRef], str]
    ) -> None:
        names = [node.name for node in engine.capacity().nodes]
        specs = attempt_specs(surroundings, ENDLESS, count=len(names))
        instances = engine.start([replace(spec, node=name) for spec, name in zip(specs, names, strict=True)])
        for instance in instances:
            wait_for_training(engine, instance)

        assert [node_of(instance) for instance in instances] == names
        engine.end(instances[0].attempt)

    def test_a_killed_agent_is_a_lost_instance_and_the_others_run_on(
        self, engine: Engine, surroundings: Surroundings, kill: Callable[[InstanceRef], None]
    ) -> None:
        first, second = engine.start(specs_on(engine, surroundings, ENDLESS, count=2))
        wait_for_training(engine, first)
        wait_for_training(engine, second)

        kill(second)

        eventually(lambda: not engine.is_alive(second))
        assert not _has_ended(engine.reports(second, 0).frames)
        assert not engine.was_taken(second)
        assert engine.is_alive(first)
        engine.end(first.attempt)

    def test_an_instance_whose_node_goes_away_was_taken_and_the_others_were_not(
        self, engine: Engine, surroundings: Surroundings, take: Callable[[str], None]
    ) -> None:
        kept, taken = [node.name for node in engine.capacity().nodes][-2:]
        specs = [replace(spec, lease_s=6, grace_s=1) for spec in attempt_specs(surroundings, ENDLESS, count=2)]
        first, second = engine.start([replace(specs[0], node=kept), replace(specs[1], node=taken)])
        wait_for_training(engine, first)
        wait_for_training(engine, second)

        take(taken)

        eventually(lambda: not engine.is_alive(second))
        assert engine.was_taken(second)
        assert not _has_ended(engine.reports(second, 0).frames)
        assert engine.is_alive(first)
        assert not engine.was_taken(first)
        engine.end(first.attempt)
        eventually(lambda: taken not in [node.name for node in engine.capacity().nodes if node.slots])

    def test_all_instances_start_or_none(
        self, engine: Engine, surroundings: Surroundings, take: Callable[[str], None]
    ) -> None:
        kept, taken = [node.name for node in engine.capacity().nodes][-2:]
        specs = attempt_specs(surroundings, ENDLESS, count=2)
        take(taken)

        with pytest.raises(Unavailable):
            engine.start([replace(specs[0], node=kept), replace(specs[1], node=taken)])

        assert not any(engine.is_alive(InstanceRef.of(spec)) for spec in specs)
        with pytest.raises(Conflict):
            engine.start([replace(spec, node=kept) for spec in specs])

    def test_starting_an_attempt_again_starts_nothing_twice(self, engine: Engine, surroundings: Surroundings) -> None:
        specs = specs_on(engine, surroundings, ENDLESS, count=2)
        instances = engine.start(specs)
        for instance in instances:
            wait_for_training(engine, instance)
        before = [engine.reports(instance, 0) for instance in instances]

        assert engine.start(specs) == instances

        assert [engine.reports(instance, 0) for instance in instances] == before
        engine.end(instances[0].attempt)

    def test_an_instance_that_ended_is_not_started_again(self, engine: Engine, surroundings: Surroundings) -> None:
        specs = specs_on(engine, surroundings)
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
            engine.start([*specs_on(engine, surroundings), *specs_on(engine, surroundings)])
        with pytest.raises(InvalidRequest):
            engine.start([])

    def test_an_engine_isolates_the_jobs_that_it_says_it_can(self, engine: Engine, surroundings: Surroundings) -> None:
        count = 1 if engine.why_not_isolated(2) else 2
        why = engine.why_not_isolated(count)
        if why:
            pytest.skip(f"no job can be isolated here, because {why}")

        isolated = [replace(each, is_isolated=True) for each in specs_on(engine, surroundings, count=count)]
        instances = engine.start(isolated)

        for instance in instances:
            assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"

    def test_ending_an_attempt_leaves_nothing_running_but_the_reports(
        self, engine: Engine, surroundings: Surroundings
    ) -> None:
        instances = engine.start(specs_on(engine, surroundings, ENDLESS, count=2))
        for instance in instances:
            wait_for_training(engine, instance)

        engine.end(instances[0].attempt)

        assert not any(engine.is_alive(instance) for instance in instances)
        for instance in instances:
            frames = engine.reports(instance, 0).frames
            assert frames
            assert frames[-1].kind is not FrameKind.ENDED

    def test_an_attempt_that_was_ended_never_starts(self, engine: Engine, surroundings: Surroundings) -> None:
        specs = specs_on(engine, surroundings)
        engine.end(AttemptRef(specs[0].job_id, 1))

        with pytest.raises(Conflict):
            engine.start(specs)

        assert not engine.is_alive(InstanceRef(AttemptRef(specs[0].job_id, 1), "algo-1"))

    def test_ending_again_is_fine(self, engine: Engine, surroundings: Surroundings) -> None:
        (instance,) = engine.start(specs_on(engine, surroundings, ENDLESS))

        engine.end(instance.attempt)
        engine.end(instance.attempt)

        assert not engine.is_alive(instance)

    def test_another_attempt_starts_after_the_first_was_ended(self, engine: Engine, surroundings: Surroundings) -> None:
        (first,) = engine.start(specs_on(engine, surroundings, ENDLESS, job_id="again"))
        engine.end(first.attempt)

        (second,) = engine.start(specs_on(engine, surroundings, job_id="again", attempt=2))

        assert reports_to_the_end(engine, second)[-1].payload["outcome"] == "completed"

    def test_an_engine_made_anew_goes_on_with_what_runs(
        self, engine: Engine, reopen: Callable[[], Engine], surroundings: Surroundings
    ) -> None:
        specs = specs_on(engine, surroundings, ENDLESS)
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
        (instance,) = engine.start(specs_on(engine, surroundings, ENDLESS))
        anew = reopen()

        anew.end(instance.attempt)

        assert not anew.is_alive(instance)
        assert not engine.is_alive(instance)

    def test_an_engine_that_is_closed_leaves_what_runs_to_the_next_one(
        self, engine: Engine, reopen: Callable[[], Engine], surroundings: Surroundings
    ) -> None:
        (instance,) = engine.start(specs_on(engine, surroundings, ENDLESS))
        wait_for_training(engine, instance)

        reopen().close()

        anew = reopen()
        assert anew.is_alive(instance)
        anew.end(instance.attempt)


def specs_on(
    engine: Engine,
    surroundings: Surroundings,
    code: str = QUICK,
    *,
    count: int = 1,
    job_id: str = "",
    attempt: int = 1,
) -> list[InstanceSpec]:
    """The instances of one attempt, placed on the nodes of an engine in turn."""
    nodes = cycle(node.name for node in engine.capacity().nodes if not node.is_spot)
    specs = attempt_specs(surroundings, code, count=count, job_id=job_id, attempt=attempt)
    return [replace(spec, node=next(nodes)) for spec in specs]


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
