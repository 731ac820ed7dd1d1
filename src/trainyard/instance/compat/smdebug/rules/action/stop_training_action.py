"""Stops the job that a rule judges."""

from typing import TYPE_CHECKING

from ...core.logger import get_logger

if TYPE_CHECKING:
    from trainyard.connection import Api


class StopTrainingAction:
    """Stops the one running job whose name begins with a prefix; where there are several, none of them."""

    def __init__(self, rule_name: str, training_job_prefix: str, api: "Api | None" = None) -> None:
        self._rule, self._prefix, self._api = rule_name, training_job_prefix, api

    def invoke(self, message: str | None = None) -> None:  # noqa: ARG002  # which other actions send
        api = self._api or _usual_api()
        jobs = self._running(api)
        if len(jobs) != 1:
            found = ", ".join(jobs) or "none"
            get_logger().warning(
                "%s stops no job: one running job must begin with %r, and these do: %s.",
                self._rule,
                self._prefix,
                found,
            )
            return
        api.call("sagemaker", "StopTrainingJob", TrainingJobName=jobs[0])

    def _running(self, api: "Api") -> list[str]:
        found = api.call("sagemaker", "ListTrainingJobs", NameContains=self._prefix, StatusEquals="InProgress")
        names = [str(job["TrainingJobName"]) for job in found["TrainingJobSummaries"]]
        return [name for name in names if name.startswith(self._prefix)]


def _usual_api() -> "Api":
    """Calls to the yard, for which the SDK is needed: a rule that a job runs has no actions of its own."""
    from trainyard.session import Session

    return Session().api
