from collections.abc import Sequence
from typing import Any

from tests.unit.foundation.sample_jobs import NOON, placed, seconds
from trainyard.foundation.clock import to_micros
from trainyard.foundation.jobs.attempts import OutcomeKind
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import Artifact, TrainingJob
from trainyard.foundation.jobs.training.transitions import ask_to_stop
from trainyard.link.contract import Frame, FrameKind
from trainyard.server.control.instances.reports import MAX_NOTES, InstanceReport
from trainyard.server.control.training.reports import apply_reports

S = SecondaryStatus


def frames(*told: tuple[float, FrameKind, dict[str, Any]]) -> list[Frame]:
    return [Frame(number, kind, to_micros(seconds(at)), payload) for number, (at, kind, payload) in enumerate(told, 1)]


def status(at: float, word: str) -> tuple[float, FrameKind, dict[str, Any]]:
    return at, FrameKind.STATUS, {"status": word, "message": ""}


def heard(job: TrainingJob, **told: Sequence[Frame]) -> TrainingJob:
    return apply_reports(job, [InstanceReport(name.replace("_", "-"), frames, 100) for name, frames in told.items()])


def statuses(job: TrainingJob) -> list[S]:
    return [step.status for step in job.transitions]


def test_statuses_become_transitions_at_their_own_times() -> None:
    job = heard(placed(), algo_1=frames(status(1, "Downloading"), status(2, "Training"), status(5, "Uploading")))
    assert statuses(job)[1:] == [S.STARTING, S.DOWNLOADING, S.TRAINING, S.UPLOADING]
    assert [step.started_at for step in job.transitions[2:]] == [seconds(1), seconds(2), seconds(5)]


def test_a_rule_that_evaluated_more_steps_has_not_changed_since() -> None:
    def told(at: float, judged: int, status: str) -> tuple[float, FrameKind, dict[str, Any]]:
        return at, FrameKind.RULE, {"rule": "Vanishing", "status": status, "details": "", "judged": judged}

    job = heard(placed(), algo_1=frames(told(1, 1, "InProgress"), told(9, 80, "InProgress")))
    (rule,) = job.attempts[-1].instances[0].rules.values()
    assert (rule.judged, rule.at) == (80, seconds(1))
    job = heard(job, algo_1=frames(told(20, 90, "NoIssuesFound")))
    (rule,) = job.attempts[-1].instances[0].rules.values()
    assert (rule.judged, rule.at) == (90, seconds(20))


def test_a_job_trains_when_all_its_instances_do() -> None:
    job = heard(placed(instances=2), algo_1=frames(status(1, "Downloading"), status(2, "Training")))
    assert job.secondary is S.DOWNLOADING
    job = heard(job, algo_2=frames(status(3, "Downloading"), status(4, "Training")))
    assert (job.secondary, job.transitions[-1].started_at) == (S.TRAINING, seconds(4))


def test_reports_of_several_instances_are_taken_in_the_order_of_their_times() -> None:
    together = heard(
        placed(instances=2),
        algo_2=frames(status(1, "Downloading"), status(4, "Training")),
        algo_1=frames(status(2, "Downloading"), status(3, "Training")),
    )
    assert [step.started_at for step in together.transitions[2:]] == [seconds(1), seconds(4)]


def test_an_instance_that_has_ended_does_not_hold_the_others_back() -> None:
    ended = (2.0, FrameKind.ENDED, {"outcome": "completed", "reason": "", "card": None})
    job = heard(placed(instances=2), algo_1=frames(status(1, "Training"), ended))
    job = heard(job, algo_2=frames(status(3, "Training"), status(4, "Uploading")))
    assert job.secondary is S.UPLOADING


def test_cursors_advance_with_what_was_read() -> None:
    job = apply_reports(
        placed(instances=2),
        [InstanceReport("algo-1", [], 7), InstanceReport("algo-2", frames(status(1, "Training")), 99)],
    )
    assert [instance.cursor for instance in job.attempts[0].instances] == [7, 99]


def test_a_job_that_is_stopping_stays_so_while_it_uploads() -> None:
    job = ask_to_stop(heard(placed(), algo_1=frames(status(1, "Training"))), "user", at=seconds(2))
    assert heard(job, algo_1=frames(status(3, "Uploading"))).secondary is S.STOPPING


def test_the_first_failure_gives_reason_and_card() -> None:
    def failed(at: float, reason: str) -> tuple[float, FrameKind, dict[str, Any]]:
        return at, FrameKind.ENDED, {"outcome": "failed", "reason": reason, "card": {"class": reason}}

    job = heard(placed(instances=2), algo_1=frames(failed(5, "second")), algo_2=frames(failed(4, "first")))
    assert (job.failure, job.card) == ("first", {"class": "first"})
    instance = job.attempts[0].instance("algo-1")
    assert (instance.outcome, instance.reason, instance.ended_at) == (OutcomeKind.FAILED, "second", seconds(5))


def test_phases_metrics_exits_artifacts_and_notes_are_kept() -> None:
    now = to_micros(NOON)
    job = heard(
        placed(),
        algo_1=frames(
            (1, FrameKind.PHASE, {"name": "sandbox", "started_us": now, "ended_us": now + 5}),
            (2, FrameKind.METRIC, {"name": "loss", "value": 0.5, "at_us": now, "count": 3}),
            (3, FrameKind.METRIC, {"name": "loss", "value": 0.25, "at_us": now + 1, "count": 4}),
            (4, FrameKind.EXITED, {"code": None, "signal": 9, "is_oom": True}),
            (5, FrameKind.ARTIFACT, {"kind": "model", "uri": "s3://b/m", "size": 3}),
            (6, FrameKind.NOTE, {"text": "memory is not limited"}),
        ),
    )
    instance = job.attempts[0].instances[0]
    assert [phase.name for phase in instance.phases] == ["sandbox"]
    assert (job.metrics["loss"].value, job.metrics["loss"].count) == (0.25, 4)
    assert (instance.exit_code, instance.exit_signal, instance.is_oom) == (None, 9, True)
    assert job.artifacts == {"model": Artifact("s3://b/m", 3)}
    assert job.notes == ("memory is not limited",)


def test_the_progress_of_a_download_is_the_last_that_was_reported() -> None:
    job = heard(
        placed(),
        algo_1=frames(
            (1, FrameKind.DOWNLOAD, {"done_bytes": 10, "total_bytes": 100}),
            (2, FrameKind.DOWNLOAD, {"done_bytes": 500, "total_bytes": 100}),
        ),
    )
    instance = job.attempts[0].instances[0]
    assert (instance.downloaded_bytes, instance.download_bytes) == (100, 100), "no more than all"
    unusable = heard(placed(), algo_1=frames((1, FrameKind.DOWNLOAD, {"done_bytes": "x"})))
    assert unusable.attempts[0].instances[0].download_bytes == 0


def test_a_talkative_instance_cannot_fill_the_records_with_notes() -> None:
    notes = [(1.0, FrameKind.NOTE, {"text": f"note {number}"}) for number in range(500)]
    assert len(heard(placed(), algo_1=frames(*notes)).notes) == MAX_NOTES


def failed(at: float, *, died_at: float, is_consequence: bool = False) -> tuple[float, FrameKind, dict[str, Any]]:
    card = {"kind": "user error", "at_us": to_micros(seconds(died_at)), "is_consequence": is_consequence}
    return at, FrameKind.ENDED, {"outcome": "failed", "reason": f"died at {died_at:g}", "card": card}


def test_the_program_that_died_first_gives_the_reason_whoever_reports_first() -> None:
    job = heard(placed(instances=2), algo_1=frames(failed(3, died_at=2.5)))
    assert job.failure == "died at 2.5"
    assert heard(job, algo_2=frames(failed(9, died_at=2))).failure == "died at 2"
    assert heard(job, algo_2=frames(failed(9, died_at=2.7))).failure == "died at 2.5"


def test_a_program_that_only_lost_a_connection_never_gives_the_reason_when_another_has_one() -> None:
    job = heard(placed(instances=2), algo_1=frames(failed(3, died_at=2.5, is_consequence=True)))
    assert heard(job, algo_2=frames(failed(9, died_at=4))).failure == "died at 4"
