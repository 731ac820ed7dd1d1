"""What drills leave behind: jobs that are tagged, and objects in places of their own."""

from collections.abc import Iterator

from trainyard.connection import Api
from trainyard.drilling.definition import FOLDER, TAG, Places
from trainyard.following import FINAL
from trainyard.foundation.locations import parse_s3_uri
from trainyard.transfers import keys_below


def drill_jobs(api: Api, job_name: str) -> Iterator[Places]:
    """The jobs of earlier drills of a job that have ended."""
    asked = {
        "Resource": "TrainingJob",
        "SearchExpression": {"Filters": [{"Name": f"Tags.{TAG}", "Operator": "Equals", "Value": job_name}]},
    }
    while True:
        page = api.call("sagemaker", "Search", **asked)
        for result in page["Results"]:
            found = result["TrainingJob"]
            where = parse_s3_uri(found["OutputDataConfig"]["S3OutputPath"], account="")
            # A tag can be given to any job; only what lies where drills put it is theirs to remove.
            is_ours = where.key.startswith(f"{FOLDER}/{found['TrainingJobName']}/")
            if is_ours and found["TrainingJobStatus"] in FINAL:
                yield Places(where.bucket.name, found["TrainingJobName"])
        if not page.get("NextToken"):
            return
        asked["NextToken"] = page["NextToken"]


def remove(api: Api, places: Places) -> None:
    """Remove a job of a drill and all that it stored."""
    for key in list(keys_below(api, places.bucket, places.prefix)):
        api.call("s3", "DeleteObject", Bucket=places.bucket, Key=key)
    api.call("sagemaker", "DeleteTrainingJob", TrainingJobName=places.job_name)
