"""Loads the trials that a warm start begins with."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.tuning import TuningJob, TuningPlan, TuningTrial
from trainyard.server.jobs.tuning import job_of, trial_of, trials_of
from trainyard.server.records.contract import Records, ResourceId

log = logging.getLogger(__name__)


def load_parents(records: Records, job: TuningJob) -> Mapping[str, Sequence[TuningTrial]]:
    """Return the ended trials of the parents of a tuning job, by name. Parents of parents do not count.

    A parent that has been deleted is left out.
    """
    found: dict[str, Sequence[TuningTrial]] = {}
    for parent in job.plan.warm_start.parents if job.plan.warm_start else ():
        try:
            resource = records.load_by_id(ResourceId(parent))
        except NotFound:
            log.warning("a parent of a tuning job is gone", extra={"tuning_job": job.name, "id": parent})
            continue
        known = job_of(resource)
        trials = map(trial_of, trials_of(records, resource.id))
        found[known.name] = [_with_static_values(trial, known.plan) for trial in trials if trial.has_ended]
    return found


def _with_static_values(trial: TuningTrial, plan: TuningPlan) -> TuningTrial:
    """Return a trial with all values that it ran with. What was static then may be tuned now."""
    static = plan.definition(trial.definition).static
    return replace(trial, values={**static, **trial.values}, curve=())
