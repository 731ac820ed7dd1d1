from dataclasses import replace

import pytest

from tests.unit.foundation.sample_jobs import placed, seconds
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import InstanceGroupPlan
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.jobs.spot import ALL, SpotUse, resume_times, spot_counts, spot_uses
from trainyard.server.records.contract import Counter

S = SecondaryStatus


def interrupted_job(*, away_s: float = 8.0, instances: int = 1) -> TrainingJob:
    """A job that trained from second 2 to 12, was interrupted, trained for ten more seconds, and ended."""
    job = placed(instances=instances)
    job = replace(job, plan=replace(job.plan, is_spot=True, billed_share=0.3))
    job = advance(job, S.TRAINING, at=seconds(2))
    first = replace(job.attempts[0], ended_at=seconds(12), interruption="It had to.")
    job = advance(job.with_attempt(first), S.INTERRUPTED, at=seconds(12))
    again = replace(first, number=2, placed_at=seconds(12 + away_s / 2), ended_at=None, interruption="")
    job = advance(replace(job, attempts=(first, again)), S.RESTARTING, at=again.placed_at)
    job = advance(advance(job, S.STARTING, at=again.placed_at), S.TRAINING, at=seconds(12 + away_s))
    end = seconds(22 + away_s)
    return advance(job.with_attempt(replace(again, ended_at=end)), S.COMPLETED, at=end)


def uses(*jobs: TrainingJob) -> list[SpotUse]:
    counters = [Counter(job.account, name, value) for job in jobs for name, value in spot_counts(job).items()]
    return spot_uses(counters)


def test_a_job_adds_to_the_totals_of_its_type_and_of_all_types() -> None:
    own, total = uses(interrupted_job(instances=2))
    assert (own.instance_type, total.instance_type) == ("ml.m5.large", ALL)
    assert replace(total, instance_type="ml.m5.large") == own
    assert (own.jobs, own.interruptions, own.trained_s, own.billed_s) == (1, 1, 20, 6)
    assert (own.trained_instance_s, own.billed_instance_s) == (40, 12)


def test_a_job_with_several_types_counts_once_in_the_total() -> None:
    job = interrupted_job(instances=3)
    groups = (InstanceGroupPlan("a", "ml.m5.large", 1), InstanceGroupPlan("b", "ml.m5.xlarge", 2))
    found = uses(replace(job, plan=replace(job.plan, groups=groups)))
    assert [(use.instance_type, use.jobs, use.trained_s, use.trained_instance_s) for use in found] == [
        ("ml.m5.large", 1, 20, 20),
        ("ml.m5.xlarge", 1, 20, 40),
        (ALL, 1, 20, 60),
    ]


def test_resume_times_are_known_to_one_fortieth() -> None:
    away = (0.5, 1.0, 3.0, 40.0, 900.0)
    *_, total = uses(*(interrupted_job(away_s=each) for each in away))
    assert (total.jobs, total.interruptions) == (5, 5)
    assert total.median_resume_s == pytest.approx(3.0, rel=1 / 40)
    assert total.worst_resume_s == pytest.approx(900.0, rel=1 / 40)


def test_a_job_that_never_resumed_has_no_resume_time() -> None:
    job = interrupted_job()
    gone = replace(job, transitions=job.transitions[:4], attempts=job.attempts[:1])
    gone = advance(gone, S.STOPPING, at=seconds(13))
    gone = advance(gone, S.STOPPED, at=seconds(13))
    assert list(resume_times(gone)) == []
    *_, total = uses(gone)
    assert (total.interruptions, total.median_resume_s, total.worst_resume_s) == (1, None, None)


def test_an_on_demand_job_adds_nothing() -> None:
    job = interrupted_job()
    assert spot_counts(replace(job, plan=replace(job.plan, is_spot=False))) == {}


def test_other_counters_are_not_spot_totals() -> None:
    assert spot_uses([Counter("1", "training-instances/spot/ml.m5.large", 3)]) == []
