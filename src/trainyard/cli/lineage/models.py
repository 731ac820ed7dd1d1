"""`trainyard models`: the model registry."""

from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.lineage.registration import register_model
from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.jobs.lookup import find_job, open_api
from trainyard.cli.terminal.console import (
    CommandGroup,
    CommandWithExamples,
    json_option,
    result_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import print_table


@click.group(cls=CommandGroup)
def models() -> None:
    """Register the models of jobs, and approve or reject them."""


@models.command(cls=CommandWithExamples, examples=("trainyard models ls", "trainyard models ls churn"))
@click.argument("group", required=False)
@yard_option
@json_option
def ls(group: str | None, folder: Path | None, as_json: JsonFields | None) -> None:
    """List the versions of all groups, or those of GROUP, the newest first."""
    asked: dict[str, Any] = {"SortOrder": "Descending", "MaxResults": 100}
    asked |= {"ModelPackageGroupName": group} if group else {"ModelPackageType": "Versioned"}
    with open_api(folder) as api:
        found = [_row(each) for each in _pages(api, asked)]
    if as_json:
        print_json({"Models": found}, as_json, items="Models")
        return
    if not found:
        say("No models are registered.")
        return
    rows = [[each["Model"], each["Approval"], each["Created"], each["Description"]] for each in found]
    print_table(("model", "approval", "created", "description"), rows)


@models.command(cls=CommandWithExamples, examples=("trainyard models register @last churn",))
@click.argument("job", shell_complete=complete_jobs)
@click.argument("group")
@click.option("--description", default="", metavar="TEXT", help="What to know about this version.")
@yard_option
@result_option("Model", "ModelPackageArn")
def register(job: str, group: str, description: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Register the model of JOB as the next version of GROUP, which is created if it does not exist."""
    with open_api(folder) as api:
        found = find_job(api, job)
        uri = found["ModelArtifacts"].get("S3ModelArtifacts")
        if not uri or found["TrainingJobStatus"] not in ("Completed", "Stopped"):
            raise Failure(
                f'Training job "{found["TrainingJobName"]}" is {found["TrainingJobStatus"]} and has no model.'
            )
        image = found["AlgorithmSpecification"].get("TrainingImage", "")
        options = {"ModelPackageDescription": description} if description else {}
        arn = register_model(api, image=image, model_uri=uri, group=group, options=options)
    title = arn.rpartition(":model-package/")[2]
    if as_json:
        print_json({"Model": title, "ModelPackageArn": arn}, as_json)
        return
    say(f"Registered {title}.")


@models.command(cls=CommandWithExamples, examples=("trainyard models approve churn/3 --because 'better on all data'",))
@click.argument("model")
@click.option("--because", default="", metavar="TEXT", help="Why; shown with the approval.")
@yard_option
@result_option("Model", "ModelApprovalStatus")
def approve(model: str, because: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Approve a version, such as churn/3."""
    _decide(model, "Approved", because, folder, as_json)


@models.command(cls=CommandWithExamples, examples=("trainyard models reject churn/3",))
@click.argument("model")
@click.option("--because", default="", metavar="TEXT", help="Why; shown with the rejection.")
@yard_option
@result_option("Model", "ModelApprovalStatus")
def reject(model: str, because: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Reject a version, such as churn/3."""
    _decide(model, "Rejected", because, folder, as_json)


def _decide(model: str, status: str, because: str, folder: Path | None, as_json: JsonFields | None) -> None:
    with open_api(folder) as api:
        arn = _find(api, model)
        said = {"ApprovalDescription": because} if because else {}
        api.call("sagemaker", "UpdateModelPackage", ModelPackageArn=arn, ModelApprovalStatus=status, **said)
    if as_json:
        print_json({"Model": model, "ModelApprovalStatus": status}, as_json)
        return
    say(f"{model} is {status} now.")


def _find(api: Api, model: str) -> str:
    from trainyard.wire.client import CallFailed

    try:
        return str(api.call("sagemaker", "DescribeModelPackage", ModelPackageName=model)["ModelPackageArn"])
    except CallFailed as error:
        raise Failure(error.message, next_step="trainyard models ls", code=ExitCode.NOT_FOUND) from error


def _pages(api: Api, asked: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = api.call("sagemaker", "ListModelPackages", **asked)
        found += page["ModelPackageSummaryList"]
        if not page.get("NextToken"):
            return found
        asked["NextToken"] = page["NextToken"]


def _row(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "Model": f"{each['ModelPackageGroupName']}/{each['ModelPackageVersion']}",
        "Approval": each.get("ModelApprovalStatus", ""),
        "Created": f"{each['CreationTime'].astimezone():%Y-%m-%d %H:%M}",
        "Description": each.get("ModelPackageDescription", ""),
    }
