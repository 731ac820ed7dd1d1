"""The trials that a warm start begins from."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainyard.foundation.errors import NotFound
from trainyard.foundation.tuning import Trial, TuningJob, TuningPlan
from trainyard.server.records.contract import Records, ResourceId
from trainyard.server.tuning import trial_of, trials_of, tuning_job_of

log = logging.getLogger(__name__)


def parents_of(records: Records, job: TuningJob) -> Mapping[str, Sequence[Trial]]:
    """What the parents of a tuning job have tried, by their names; their own parents do not count.

    One that was deleted since tells nothing any more.
    """
    found: dict[str, Sequence[Trial]] = {}
    for parent in job.plan.warm_start.parents if job.plan.warm_start else ():
        try:
            resource = records.load_by_id(ResourceId(parent))
        except NotFound:
            log.warning("a parent of a tuning job is gone", extra={"tuning_job": job.name, "id": parent})
            continue
        known = tuning_job_of(resource)
        trials = map(trial_of, trials_of(records, resource.id))
        found[known.name] = [_whole(trial, known.plan) for trial in trials if trial.has_ended]
    return found


def _whole(trial: Trial, plan: TuningPlan) -> Trial:
    """A trial with all values it ran with: what was static then may be tuned now."""
    static = plan.definition(trial.definition).static
    return replace(trial, values={**static, **trial.values}, curve=())
