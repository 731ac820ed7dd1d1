"""Stops the job that a rule evaluates."""

from typing import TYPE_CHECKING

from ...core.logger import get_logger

if TYPE_CHECKING:
    from trainyard._sdk.connection import Api


class StopTrainingAction:
    """Stops the running job whose name begins with a prefix; if several do, it stops none."""

    def __init__(self, rule_name: str, training_job_prefix: str, api: "Api | None" = None) -> None:
        self._rule, self._prefix, self._api = rule_name, training_job_prefix, api

    def invoke(self, message: str | None = None) -> None:  # noqa: ARG002
        api = self._api or _default_api()
        jobs = self._list_running(api)
        if len(jobs) != 1:
            names = ", ".join(jobs) or "none"
            get_logger().warning(
                "%s stops no job: the name of exactly one running job must begin with %r. Matches: %s.",
                self._rule,
                self._prefix,
                names,
            )
            return
        api.call("sagemaker", "StopTrainingJob", TrainingJobName=jobs[0])

    def _list_running(self, api: "Api") -> list[str]:
        response = api.call("sagemaker", "ListTrainingJobs", NameContains=self._prefix, StatusEquals="InProgress")
        names = [str(job["TrainingJobName"]) for job in response["TrainingJobSummaries"]]
        return [name for name in names if name.startswith(self._prefix)]


def _default_api() -> "Api":
    """Return a client of the yard. Needs the SDK, which is fine: rules that run in a job have no actions here."""
    from trainyard.session import Session

    return Session().api
