from tests.unit.server.control.profiling.profiles import Profiled, rule
from trainyard.server.control.profiling.evaluation_watch import EvaluationWatch
from trainyard.server.jobs.profile_evaluations import KIND
from trainyard.server.records.contract import Query, Resource, ResourceId

REPORT = rule("report", "ProfilerReport")


def evaluation(profiled: Profiled) -> Resource:
    (found,) = profiled.bench.work.records.find(Query(KIND)).resources
    return found


def is_due(profiled: Profiled, watch: EvaluationWatch) -> bool:
    records, now = profiled.bench.work.records, profiled.bench.watch()
    watch.bring_forward(records, KIND, now=now)
    return records.first_due(KIND, now=now) is not None


def postponed(profiled: Profiled) -> EvaluationWatch:
    """Return a watch on the one job, of which the evaluation was looked at and is not due for a while."""
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    watch = EvaluationWatch()
    watch.add(profiled.bench.resource(), evaluation(profiled).id, is_begun=False)
    return watch


def test_the_begin_of_training_makes_an_evaluation_due(profiled: Profiled) -> None:
    profiled.bench.create(ProfilerRuleConfigurations=[REPORT])
    watch = postponed(profiled)
    assert not is_due(profiled, watch)
    profiled.bench.turn(profiled.bench.place(), times=2)
    watch.handle_change(profiled.bench.resource().id)
    assert is_due(profiled, watch)


def test_the_end_of_a_job_makes_an_evaluation_due(profiled: Profiled) -> None:
    claim = profiled.start(REPORT)
    watch = postponed(profiled)
    assert not is_due(profiled, watch)
    profiled.end(claim)
    watch.handle_change(profiled.bench.resource().id)
    assert is_due(profiled, watch)


def test_other_changes_make_nothing_due(profiled: Profiled) -> None:
    profiled.start(REPORT)
    watch = postponed(profiled)
    assert not is_due(profiled, watch)
    watch.handle_change(profiled.bench.resource().id)
    watch.handle_change(ResourceId("another"))
    assert not is_due(profiled, watch)


def test_a_job_that_was_deleted_is_forgotten(profiled: Profiled) -> None:
    profiled.start(REPORT)
    watch = postponed(profiled)
    job = profiled.bench.resource()
    profiled.bench.work.records.delete(job, now=profiled.bench.watch())
    watch.handle_change(job.id)
    assert not is_due(profiled, watch)
    assert not is_due(profiled, watch)
