from typing import Any

from tests.unit.recording import RecordingApi
from trainyard.drilling.definition import Places
from trainyard.drilling.leftovers import drill_jobs, remove


def job(name: str, *, status: str = "Completed", path: str = "") -> dict[str, Any]:
    where = path or f"s3://mine/trainyard-drills/{name}/output"
    shape = {"TrainingJobName": name, "TrainingJobStatus": status, "OutputDataConfig": {"S3OutputPath": where}}
    return {"TrainingJob": shape}


def test_only_jobs_of_drills_that_have_ended_are_found() -> None:
    pages: dict[str | None, dict[str, Any]] = {
        None: {"Results": [job("a"), job("b", status="InProgress"), job("c", path="s3://data/out")], "NextToken": "2"},
        "2": {"Results": [job("d", status="Failed")]},
    }
    api = RecordingApi(Search=lambda asked: pages[asked.get("NextToken")])
    assert list(drill_jobs(api, "mnist")) == [Places("mine", "a"), Places("mine", "d")]
    (condition,) = api.asked[0][1]["SearchExpression"]["Filters"]
    assert condition == {"Name": "Tags.trainyard:drill", "Operator": "Equals", "Value": "mnist"}


def test_a_job_goes_with_all_that_it_stored() -> None:
    keys = ["trainyard-drills/a/checkpoints/x", "trainyard-drills/a/output/a/output/model.tar.gz"]
    api = RecordingApi(ListObjectsV2={"Contents": [{"Key": key} for key in keys]})
    remove(api, Places("mine", "a"))
    assert api.only("ListObjectsV2") == {"Bucket": "mine", "Prefix": "trainyard-drills/a/", "EncodingType": "url"}
    assert [asked["Key"] for name, asked in api.asked if name == "DeleteObject"] == keys
    assert api.only("DeleteTrainingJob") == {"TrainingJobName": "a"}
