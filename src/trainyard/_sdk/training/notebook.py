"""A training job as notebooks show it."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.training.console import duration_text
from trainyard._sdk.training.metrics import in_time_order, read_points
from trainyard._sdk.training.stream import FINAL, Description
from trainyard.foundation.notebook_html import card, curve, table
from trainyard.foundation.notebook_live import View

# A reason that takes more is in the log too.
_MAX_REASON = 500
# Every view reads them anew.
_MAX_CURVES, _MAX_POINTS = 8, 160


def view_job(api: Api, name: str) -> View:
    """Return a job as it is now, with the curves of its metrics."""
    description = api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=name)
    names = [each["MetricName"] for each in description.get("FinalMetricDataList", ())]
    curves = {
        metric: [value for _, value in in_time_order(read_points(api, name, metric, max_points=_MAX_POINTS))]
        for metric in names[:_MAX_CURVES]
    }
    status = description["TrainingJobStatus"]
    return View(job_html(description, curves), f"<training job {name}: {status}>", status in FINAL)


def job_html(description: Description, curves: Mapping[str, Sequence[float]] | None = None) -> str:
    """Return the status, the times, the hyperparameters and the last metrics of a job."""
    known = curves or {}
    metrics = [
        (each["MetricName"], f"{each['Value']:.6g}", curve(known.get(each["MetricName"], ())))
        for each in description.get("FinalMetricDataList", ())
    ]
    return card(
        f"Training job {description['TrainingJobName']}",
        {
            "status": status_text(description),
            "reason": description.get("FailureReason", "")[:_MAX_REASON],
            "instances": instances_text(description["ResourceConfig"]),
            "trained for": _duration(description),
            "created": f"{description['CreationTime']:%Y-%m-%d %H:%M:%S %Z}",
            "model": description.get("ModelArtifacts", {}).get("S3ModelArtifacts", ""),
            "hyperparameters": _hyperparameters(description.get("HyperParameters", {})),
        },
        table(("metric", "last value", ""), metrics),
    )


def status_text(description: Description) -> str:
    """Return the status, with the secondary one while that says more."""
    status, secondary = description["TrainingJobStatus"], description.get("SecondaryStatus", "")
    return f"{status}: {secondary}" if status == "InProgress" and secondary else status


def instances_text(resources: Mapping[str, Any]) -> str:
    groups = resources.get("InstanceGroups") or [resources]
    return ", ".join(f"{each.get('InstanceCount', 1)} x {each.get('InstanceType', '')}" for each in groups)


def _duration(description: Description) -> str:
    seconds = description.get("TrainingTimeInSeconds")
    return "" if seconds is None else duration_text(float(seconds))


def _hyperparameters(values: Mapping[str, str]) -> str:
    """Return the hyperparameters that the user set."""
    return ", ".join(f"{name}={value}" for name, value in values.items() if not name.startswith(("sagemaker_", "_")))
