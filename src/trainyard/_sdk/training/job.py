"""A handle on one training job of a yard."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainyard._sdk.connection import Api
from trainyard._sdk.training.cloudwatch import LogLine, read_log
from trainyard._sdk.training.console import EventPrinter
from trainyard._sdk.training.outcomes import Details, failure, summary
from trainyard._sdk.training.stream import Description, follow_job
from trainyard.exceptions import CapacityError, UnexpectedStatusException
from trainyard.foundation.errors import InvalidRequest

if TYPE_CHECKING:
    from trainyard._sdk.profiling.profiled_job import ProfiledJob


class TrainingJobHandle:
    """A training job by name. Creating a handle does not call the yard."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, name

    def __repr__(self) -> str:
        return f"<training job {self._name}>"

    def _repr_html_(self) -> str:
        from trainyard._sdk.training.notebook import job_html

        return job_html(self.describe())

    def _ipython_display_(self) -> None:
        from trainyard._sdk.training.notebook import view_job
        from trainyard.foundation.notebook_live import show_live

        show_live(lambda: view_job(self._api, self._name))

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._name

    @property
    def job_name(self) -> str:
        """The name of the job, as the sagemaker SDK spells it."""
        return self._name

    def describe(self) -> dict[str, Any]:
        """Return the DescribeTrainingJob response."""
        return self._api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=self._name)

    def details(self) -> Details:
        """Return what only the yard knows: notes, shares, the waterfall, attempts, the failure card and the cost."""
        return self._api.call("trainyard", "DescribeJob", TrainingJobName=self._name)

    def rule_job_summary(self) -> list[dict[str, Any]]:
        """Return the rules of the job, each with its name, status and details."""
        description = self.describe()
        members = ("DebugRuleEvaluationStatuses", "ProfilerRuleEvaluationStatuses")
        return [dict(status) for member in members for status in description.get(member, ())]

    def profiler_rule_job_summary(self) -> list[dict[str, Any]]:
        """Return the profiler rules of the job, each with its name, status and details."""
        return [dict(status) for status in self.describe().get("ProfilerRuleEvaluationStatuses", ())]

    def profile(self) -> "ProfiledJob":
        """Return what the profile of the job means now: the bottleneck, advice, costs, and the profiler rules."""
        from trainyard._sdk.profiling.profiled_job import read_profile

        return read_profile(self._api, self._name)

    def profile_steps(self, steps: int = 5) -> str:
        """Ask the running program for a detailed profile of its next steps, and return where on S3 it will be."""
        answer = self._api.call("trainyard", "ProfileJob", TrainingJobName=self._name, Steps=steps)
        return str(answer["ProfilerOutput"])

    def stop(self) -> None:
        """Stop the job. The call returns at once; the job is Stopped when its script has ended."""
        self._api.call("sagemaker", "StopTrainingJob", TrainingJobName=self._name)

    def update(self, **changes: Mapping[str, Any]) -> None:
        """Change the members of the job that UpdateTrainingJob accepts."""
        self._api.call("sagemaker", "UpdateTrainingJob", TrainingJobName=self._name, **changes)

    def wait(self, logs: str | bool | Sequence[str] = True) -> None:
        """Wait until the job has ended, and print its progress. `logs` is as in `fit` of an estimator.

        Raises UnexpectedStatusException if the job has failed. A stopped job is not an error: it may have saved its
        model. Ctrl-C ends the wait, not the job.
        """
        shows_log = is_log_shown(logs)
        try:
            self._print_events(self.describe(), logs=shows_log)
        except KeyboardInterrupt:
            sys.stdout.write(f"\n{detached_message(self._name)}\n")
            raise
        description, details = self.describe(), self.details()
        require_no_failure(description, details)
        sys.stdout.write(f"{summary(description, details)}\n")

    def wait_for_end(self) -> Description:
        """Wait without output until the job has ended with any status, and return its description."""
        for _ in follow_job(self._api, self._name, logs=False):
            pass
        return self.describe()

    def logs(self, wait: bool = True) -> None:
        """Print the log of the job; with `wait`, until the job has ended."""
        printer = EventPrinter(sys.stdout, sys.stdout, instance_count=instance_count(self.describe()))
        for event in follow_job(self._api, self._name) if wait else read_log(self._api, self._name):
            if isinstance(event, LogLine):
                printer.print_line(event)

    def _print_events(self, description: Description, *, logs: bool) -> None:
        printer = EventPrinter(
            sys.stdout, sys.stdout, created_at=description["CreationTime"], instance_count=instance_count(description)
        )
        printer.print_events(follow_job(self._api, self._name, logs=logs))


def is_log_shown(logs: str | bool | Sequence[str]) -> bool:
    """Return whether the kinds of logs that a user names include that of the job. InvalidRequest for an unknown one."""
    if isinstance(logs, bool):
        return logs
    kinds = {logs} if isinstance(logs, str) else set(logs)
    unknown = sorted(kinds - set(_LOG_KINDS))
    if unknown:
        raise InvalidRequest(f'logs names "{unknown[0]}"; the kinds of logs are {", ".join(_LOG_KINDS)}.')
    return any(_LOG_KINDS[kind] for kind in kinds)


_LOG_KINDS = {"All": True, "Training": True, "Rules": False, "None": False}


def hyperparameter(text: str) -> Any:
    """Return the value of a hyperparameter. SDKs send JSON; any other text is returned unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def instance_count(description: Description) -> int:
    """Return the number of instances of a job, including those of its instance groups."""
    resources = description["ResourceConfig"]
    groups = resources.get("InstanceGroups", ())
    count: int = resources.get("InstanceCount") or sum(group["InstanceCount"] for group in groups) or 1
    return count


def require_no_failure(description: Description, details: Details) -> None:
    """Raise an error if a job has failed. The message has its name, the reason and advice."""
    status = description["TrainingJobStatus"]
    if status != "Failed":
        return
    kind = CapacityError if "CapacityError" in description.get("FailureReason", "") else UnexpectedStatusException
    raise kind(failure(description, details), ("Completed", "Stopped"), status)


def detached_message(name: str) -> str:
    """Return how to follow or stop a job that nobody waits for any more."""
    return (
        f'Training job "{name}" continues: `trainyard logs -f {name}` follows its log, `trainyard stop {name}` stops '
        "it."
    )
