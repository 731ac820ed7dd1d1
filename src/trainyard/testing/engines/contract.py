"""The contract of `Engine` as a test suite that every engine must pass."""

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import cycle

import pytest

from trainyard.engines.contract import AttemptRef, Engine, InstanceRef
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, Unavailable
from trainyard.link.contract import INTERRUPTED, CommandKind, Frame, FrameKind, InstanceSpec
from trainyard.testing.engines.samples import ENDLESS, FAILING, QUICK, SampleEnvironment, attempt_specs
from trainyard.testing.eventually import eventually


class EngineContract:
    """Subclass it in a test module with these fixtures:

    - `engine`: the engine under test, made ready;
    - `reopen`: opens it again, as a yard does that was killed and restarted;
    - `environment`: where its instances find an object store with the bucket `samples.BUCKET`;
    - `kill`: ends the agent of an instance with SIGKILL;
    - `node_of`: returns the node on which an instance really runs; not needed for a single node;
    - `take`: takes a node away for good with everything that runs there; not needed for the yard's own machine.
    """

    @pytest.fixture
    def node_of(self, engine: Engine) -> Callable[[InstanceRef], str]:
        (node,) = engine.capacity().nodes
        return lambda _: node.name

    @pytest.fixture
    def take(self, engine: Engine) -> Callable[[str], None]:
        pytest.skip(f"the {engine.name} engine has only the yard's own machine, which cannot be taken away")

    def test_there_is_capacity_for_at_least_one_instance(self, engine: Engine) -> None:
        capacity = engine.capacity()

        assert capacity.slots >= 1
        assert capacity.cpus > 0
        assert capacity.memory_bytes > 0
        assert not capacity.obstacle

    def test_nodes_have_unique_names_and_capacity(self, engine: Engine) -> None:
        nodes = engine.capacity().nodes

        assert len({node.name for node in nodes}) == len(nodes)
        assert all(node.slots >= 1 and node.cpus > 0 and node.memory_bytes > 0 for node in nodes)

    def test_an_unsupported_feature_is_described_by_a_clause(self, engine: Engine) -> None:
        capabilities = engine.capabilities()
        clauses = [getattr(capabilities, each.name) for each in fields(capabilities)]

        for clause in (*clauses, engine.why_not_isolated(1), engine.why_not_isolated(2)):
            assert not clause or (clause[0].islower() and not clause.endswith("."))

    def test_an_engine_of_several_nodes_lets_a_job_have_several(self, engine: Engine) -> None:
        assert len(engine.capacity().nodes) == 1 or not engine.capabilities().several_nodes

    def test_an_instance_reports_until_it_ends_and_is_then_gone(
        self, engine: Engine, environment: SampleEnvironment
    ) -> None:
        (instance,) = engine.start(specs_on(engine, environment))

        frames = reports_to_the_end(engine, instance)

        assert frames[-1].payload["outcome"] == "completed"
        assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))
        eventually(lambda: not engine.is_alive(instance))

    def test_a_program_that_fails_ends_its_instance_as_failed(
        self, engine: Engine, environment: SampleEnvironment
    ) -> None:
        (instance,) = engine.start(specs_on(engine, environment, FAILING))

        frames = reports_to_the_end(engine, instance)

        assert frames[-1].payload["outcome"] == "failed"
        assert frames[-1].payload["reason"]

    def test_all_instances_of_an_attempt_run(self, engine: Engine, environment: SampleEnvironment) -> None:
        instances = engine.start(specs_on(engine, environment, count=2))

        assert [instance.name for instance in instances] == ["algo-1", "algo-2"]
        ends = [reports_to_the_end(engine, instance)[-1] for instance in instances]
        assert [end.payload["outcome"] for end in ends] == ["completed", "completed"]

    def test_reading_continues_where_the_last_read_ended_and_removes_nothing(
        self, engine: Engine, environment: SampleEnvironment
    ) -> None:
        (instance,) = engine.start(specs_on(engine, environment))
        frames = reports_to_the_end(engine, instance)

        first = engine.reports(instance, 0)

        assert list(first.frames) == frames
        assert engine.reports(instance, 0) == first
        assert engine.reports(instance, first.next_offset).frames == ()
        assert engine.reports(instance, first.next_offset).next_offset == first.next_offset

    def test_a_running_instance_stops_on_command(self, engine: Engine, environment: SampleEnvironment) -> None:
        (instance,) = engine.start(specs_on(engine, environment, ENDLESS))
        wait_for_training(engine, instance)
        assert engine.is_alive(instance)

        engine.command(instance, CommandKind.STOP, {"reason": "user"})

        assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "stopped"
        eventually(lambda: not engine.is_alive(instance))

    def test_an_instance_that_is_interrupted_says_so(self, engine: Engine, environment: SampleEnvironment) -> None:
        (instance,) = engine.start(specs_on(engine, environment, ENDLESS))
        wait_for_training(engine, instance)

        engine.command(instance, CommandKind.STOP, {"reason": INTERRUPTED})

        frames = reports_to_the_end(engine, instance)
        assert (frames[-1].payload["outcome"], frames[-1].payload["reason"]) == ("stopped", INTERRUPTED)
        assert FrameKind.ARTIFACT not in [frame.kind for frame in frames]
        eventually(lambda: not engine.is_alive(instance))
        assert not engine.has_lost_node(instance)

    def test_commands_are_numbered_in_order(self, engine: Engine, environment: SampleEnvironment) -> None:
        (instance,) = engine.start(specs_on(engine, environment))

        numbers = [engine.command(instance, CommandKind.STOP).number for _ in range(3)]

        assert numbers == [1, 2, 3]

    def test_an_instance_never_started_is_not_alive_and_has_no_reports(self, engine: Engine) -> None:
        unknown = InstanceRef(AttemptRef("nothing", 1), "algo-1")

        assert not engine.is_alive(unknown)
        assert engine.reports(unknown, 0).frames == ()
        with pytest.raises(NotFound):
            engine.command(unknown, CommandKind.STOP)

    def test_instances_run_on_the_nodes_that_they_were_placed_on(
        self, engine: Engine, environment: SampleEnvironment, node_of: Callable[[InstanceRef], str]
    ) -> None:
        names = [node.name for node in engine.capacity().nodes]
        specs = attempt_specs(environment, ENDLESS, count=len(names))
        instances = engine.start([replace(spec, node=name) for spec, name in zip(specs, names, strict=True)])
        for instance in instances:
            wait_for_training(engine, instance)

        assert [node_of(instance) for instance in instances] == names
        engine.end(instances[0].attempt)

    def test_a_killed_agent_is_a_lost_instance_and_the_others_keep_running(
        self, engine: Engine, environment: SampleEnvironment, kill: Callable[[InstanceRef], None]
    ) -> None:
        first, second = engine.start(specs_on(engine, environment, ENDLESS, count=2))
        wait_for_training(engine, first)
        wait_for_training(engine, second)

        kill(second)

        eventually(lambda: not engine.is_alive(second))
        assert not _has_ended(engine.reports(second, 0).frames)
        assert not engine.has_lost_node(second)
        assert engine.is_alive(first)
        engine.end(first.attempt)

    def test_only_an_instance_whose_node_goes_away_has_lost_its_node(
        self, engine: Engine, environment: SampleEnvironment, take: Callable[[str], None]
    ) -> None:
        kept, taken = [node.name for node in engine.capacity().nodes][-2:]
        specs = [replace(spec, lease_s=6, grace_s=1) for spec in attempt_specs(environment, ENDLESS, count=2)]
        first, second = engine.start([replace(specs[0], node=kept), replace(specs[1], node=taken)])
        wait_for_training(engine, first)
        wait_for_training(engine, second)

        take(taken)

        eventually(lambda: not engine.is_alive(second))
        assert engine.has_lost_node(second)
        assert not _has_ended(engine.reports(second, 0).frames)
        assert engine.is_alive(first)
        assert not engine.has_lost_node(first)
        engine.end(first.attempt)
        eventually(lambda: taken not in [node.name for node in engine.capacity().nodes if node.slots])

    def test_all_instances_start_or_none(
        self, engine: Engine, environment: SampleEnvironment, take: Callable[[str], None]
    ) -> None:
        kept, taken = [node.name for node in engine.capacity().nodes][-2:]
        specs = attempt_specs(environment, ENDLESS, count=2)
        take(taken)

        with pytest.raises(Unavailable):
            engine.start([replace(specs[0], node=kept), replace(specs[1], node=taken)])

        assert not any(engine.is_alive(InstanceRef.of(spec)) for spec in specs)
        with pytest.raises(Conflict):
            engine.start([replace(spec, node=kept) for spec in specs])

    def test_starting_an_attempt_again_starts_nothing_twice(
        self, engine: Engine, environment: SampleEnvironment
    ) -> None:
        specs = specs_on(engine, environment, ENDLESS, count=2)
        instances = engine.start(specs)
        for instance in instances:
            wait_for_training(engine, instance)
        before = [engine.reports(instance, 0) for instance in instances]

        assert engine.start(specs) == instances

        assert [engine.reports(instance, 0) for instance in instances] == before
        engine.end(instances[0].attempt)

    def test_an_instance_that_ended_is_not_started_again(self, engine: Engine, environment: SampleEnvironment) -> None:
        specs = specs_on(engine, environment)
        (instance,) = engine.start(specs)
        frames = reports_to_the_end(engine, instance)
        eventually(lambda: not engine.is_alive(instance))

        engine.start(specs)

        assert not engine.is_alive(instance)
        assert list(engine.reports(instance, 0).frames) == frames

    def test_only_the_instances_of_one_attempt_are_started_together(
        self, engine: Engine, environment: SampleEnvironment
    ) -> None:
        with pytest.raises(InvalidRequest):
            engine.start([*specs_on(engine, environment), *specs_on(engine, environment)])
        with pytest.raises(InvalidRequest):
            engine.start([])

    def test_an_engine_isolates_the_jobs_that_it_says_it_can(
        self, engine: Engine, environment: SampleEnvironment
    ) -> None:
        count = 1 if engine.why_not_isolated(2) else 2
        why = engine.why_not_isolated(count)
        if why:
            pytest.skip(f"no job can be isolated here, because {why}")

        isolated = [replace(each, is_isolated=True) for each in specs_on(engine, environment, count=count)]
        instances = engine.start(isolated)

        for instance in instances:
            assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"

    def test_ending_an_attempt_leaves_nothing_running_but_the_reports(
        self, engine: Engine, environment: SampleEnvironment
    ) -> None:
        instances = engine.start(specs_on(engine, environment, ENDLESS, count=2))
        for instance in instances:
            wait_for_training(engine, instance)

        engine.end(instances[0].attempt)

        assert not any(engine.is_alive(instance) for instance in instances)
        for instance in instances:
            frames = engine.reports(instance, 0).frames
            assert frames
            assert frames[-1].kind is not FrameKind.ENDED

    def test_an_attempt_that_was_ended_never_starts(self, engine: Engine, environment: SampleEnvironment) -> None:
        specs = specs_on(engine, environment)
        engine.end(AttemptRef(specs[0].job_id, 1))

        with pytest.raises(Conflict):
            engine.start(specs)

        assert not engine.is_alive(InstanceRef(AttemptRef(specs[0].job_id, 1), "algo-1"))

    def test_ending_an_attempt_twice_has_no_effect(self, engine: Engine, environment: SampleEnvironment) -> None:
        (instance,) = engine.start(specs_on(engine, environment, ENDLESS))

        engine.end(instance.attempt)
        engine.end(instance.attempt)

        assert not engine.is_alive(instance)

    def test_another_attempt_starts_after_the_first_was_ended(
        self, engine: Engine, environment: SampleEnvironment
    ) -> None:
        (first,) = engine.start(specs_on(engine, environment, ENDLESS, job_id="again"))
        engine.end(first.attempt)

        (second,) = engine.start(specs_on(engine, environment, job_id="again", attempt=2))

        assert reports_to_the_end(engine, second)[-1].payload["outcome"] == "completed"

    def test_a_reopened_engine_continues_with_what_runs(
        self, engine: Engine, reopen: Callable[[], Engine], environment: SampleEnvironment
    ) -> None:
        specs = specs_on(engine, environment, ENDLESS)
        (instance,) = engine.start(specs)
        wait_for_training(engine, instance)

        reopened = reopen()

        assert reopened.is_alive(instance)
        assert reopened.start(specs) == (instance,)
        reopened.command(instance, CommandKind.STOP, {"reason": "user"})
        assert reports_to_the_end(reopened, instance)[-1].payload["outcome"] == "stopped"

    def test_a_reopened_engine_ends_what_an_earlier_one_started(
        self, engine: Engine, reopen: Callable[[], Engine], environment: SampleEnvironment
    ) -> None:
        (instance,) = engine.start(specs_on(engine, environment, ENDLESS))
        reopened = reopen()

        reopened.end(instance.attempt)

        assert not reopened.is_alive(instance)
        assert not engine.is_alive(instance)

    def test_a_closed_engine_leaves_its_instances_to_the_next_one(
        self, engine: Engine, reopen: Callable[[], Engine], environment: SampleEnvironment
    ) -> None:
        (instance,) = engine.start(specs_on(engine, environment, ENDLESS))
        wait_for_training(engine, instance)

        reopen().close()

        reopened = reopen()
        assert reopened.is_alive(instance)
        reopened.end(instance.attempt)


def specs_on(
    engine: Engine,
    environment: SampleEnvironment,
    code: str = QUICK,
    *,
    count: int = 1,
    job_id: str = "",
    attempt: int = 1,
) -> list[InstanceSpec]:
    """Return the instances of one attempt, placed on the nodes of an engine in turn."""
    nodes = cycle(node.name for node in engine.capacity().nodes if not node.is_spot)
    specs = attempt_specs(environment, code, count=count, job_id=job_id, attempt=attempt)
    return [replace(spec, node=next(nodes)) for spec in specs]


def reports_to_the_end(engine: Engine, instance: InstanceRef) -> list[Frame]:
    """Return every frame of an instance, once the last is there."""

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
