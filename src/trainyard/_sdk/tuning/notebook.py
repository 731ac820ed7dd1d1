"""A tuning job as notebooks show it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainyard._sdk.training.stream import FINAL, Description
from trainyard._sdk.tuning.text import aim_of, counts_text, number_text, value_of, values_text
from trainyard.foundation.notebook_html import card, table
from trainyard.foundation.notebook_live import View

if TYPE_CHECKING:
    from trainyard._sdk.tuning.job import TuningJobHandle


def view_study(job: "TuningJobHandle", *, max_trials: int) -> View:
    """Return a tuning job as it is now."""
    description = job.describe()
    status = description["HyperParameterTuningJobStatus"]
    # Described before its trials are listed: one that has ended then has all of them.
    html = study_html(description, job.best_trials(max_trials))
    return View(html, f"<tuning job {job.name}: {status}>", status in FINAL)


def study_html(description: Description, best: Sequence[Mapping[str, Any]]) -> str:
    """Return the status, the counts and the best training jobs of a tuning job."""
    aim = aim_of(description)
    rows = [
        (trial["TrainingJobName"], trial["TrainingJobStatus"], number_text(value_of(trial)), values_text(trial))
        for trial in best
    ]
    return card(
        f"Tuning job {description['HyperParameterTuningJobName']}",
        {
            "status": description["HyperParameterTuningJobStatus"],
            "reason": description.get("FailureReason", ""),
            "objective": f"{'maximize' if aim.is_maximized else 'minimize'} {aim.metric}",
            "training jobs": counts_text(description),
        },
        table(("best training jobs", "status", aim.metric, "hyperparameters"), rows),
    )
