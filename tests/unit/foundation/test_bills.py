from dataclasses import replace
from datetime import datetime

import pytest

from tests.unit.foundation.jobs import pending, placed, seconds
from trainyard.foundation.bills import Bill, bill_of
from trainyard.foundation.jobs import SecondaryStatus, TrainingJob
from trainyard.foundation.transitions import advance


def ended(at: datetime, *, billed_share: float = 1.0) -> TrainingJob:
    job = advance(placed(), SecondaryStatus.TRAINING, at=seconds(1))
    job = replace(job, plan=replace(job.plan, billed_share=billed_share))
    job = job.with_attempt(replace(job.attempts[-1], ended_at=at))
    return advance(job, SecondaryStatus.COMPLETED, at=at)


@pytest.mark.parametrize(
    ("share", "bill"), [(1.0, Bill(100, 100)), (0.3, Bill(100, 30)), (0.0, Bill(100, 0)), (0.001, Bill(100, 1))]
)
def test_spot_seconds_are_billed_by_their_price(share: float, bill: Bill) -> None:
    assert bill_of(ended(seconds(101), billed_share=share)) == bill


def test_a_begun_second_is_a_second() -> None:
    assert bill_of(ended(seconds(1.2))) == Bill(1, 1)
    assert bill_of(ended(seconds(2.2))) == Bill(2, 2)


def test_a_job_that_goes_on_or_never_began_has_no_bill() -> None:
    assert bill_of(placed()) is None
    assert bill_of(advance(pending(), SecondaryStatus.FAILED, at=seconds(1))) is None
