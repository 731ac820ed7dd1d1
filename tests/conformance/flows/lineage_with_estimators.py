"""The lineage and the model registry, with the classes of one package. Its argument is `sagemaker` or `trainyard`."""

import importlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SCRIPT = 'import os; open(os.path.join(os.environ["SM_MODEL_DIR"], "m"), "w").write("x")\n'
LIMIT_S = 60


def load(package: str, *names: str) -> list[Any]:
    """Import modules of the package, such as `lineage.artifact`."""
    return [importlib.import_module(f"{package}.{name}") for name in names]


def follow_entities(package: str, session: Any) -> None:
    """Make a small lineage by hand, and query it as the documentation of AWS does."""
    artifact, context, action, association, query, visualizer = load(
        package,
        "lineage.artifact",
        "lineage.context",
        "lineage.action",
        "lineage.association",
        "lineage.query",
        "lineage.visualizer",
    )
    given = {"sagemaker_session": session}
    raw = artifact.Artifact.create(artifact_name="raw", source_uri="s3://b/raw", artifact_type="DataSet", **given)
    clean = artifact.Artifact.create(source_uri="s3://b/clean", artifact_type="DataSet", **given)
    endpoint = context.Context.create("shop", "arn:endpoint", context_type="Endpoint", **given)
    deployed = action.Action.create("deploy", "arn:model", action_type="ModelDeployment", status="Completed", **given)
    for source, destination in (
        (raw.artifact_arn, clean.artifact_arn),
        (clean.artifact_arn, deployed.action_arn),
        (deployed.action_arn, endpoint.context_arn),
        (clean.artifact_arn, raw.artifact_arn),
    ):
        association.Association.create(source, destination, "ContributedTo", **given)
    raw.properties = {"owner": "anna"}
    raw.save()
    assert artifact.Artifact.load(raw.artifact_arn, **given).properties["owner"] == "anna"
    assert [each.artifact_arn for each in artifact.Artifact.list(source_uri="s3://b/raw", **given)] == [
        raw.artifact_arn
    ]

    datasets = query.LineageFilter(
        entities=[query.LineageEntityEnum.ARTIFACT], sources=[query.LineageSourceEnum.DATASET]
    )
    found = query.LineageQuery(session).query(
        start_arns=[endpoint.context_arn],
        query_filter=datasets,
        direction=query.LineageQueryDirectionEnum.ASCENDANTS,
        include_edges=False,
    )
    assert {each.arn for each in found.vertices} == {raw.artifact_arn, clean.artifact_arn}
    assert {each.to_lineage_object().artifact_arn for each in found.vertices} == {raw.artifact_arn, clean.artifact_arn}
    assert found.edges == []

    table = visualizer.LineageTableVisualizer(session).show(artifact_arn=clean.artifact_arn)
    assert sorted(table["Name/Source"]) == ["deploy", "raw", "raw"]
    assert set(table["Direction"]) == {"Input", "Output"}
    for each in (raw, clean, endpoint, deployed):
        each.delete(disassociate=True)
    assert list(artifact.Artifact.list(source_uri="s3://b/raw", **given)) == []


def register_a_model(package: str, session: Any, folder: Path) -> str:
    """Train a model and register it; return the ARN of the package."""
    (estimator,) = load(package, "estimator")
    (folder / "train.py").write_text(SCRIPT)
    made = estimator.Estimator(
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6-cpu-py312",
        role="TrainyardRole",
        instance_count=1,
        instance_type="ml.m5.large",
        entry_point=str(folder / "train.py"),
        sagemaker_session=session,
    )
    made.fit(logs="None" if package == "trainyard" else False)
    options = {
        "content_types": ["text/csv"],
        "response_types": ["text/csv"],
        "inference_instances": ["ml.m5.large"],
        "transform_instances": ["ml.m5.large"],
        "model_package_group_name": "digits",
        "approval_status": "PendingManualApproval",
        "customer_metadata_properties": {"owner": "anna"},
    }
    first, second = (made.register(**options).model_package_arn for _ in range(2))
    assert [arn.rpartition("/")[2] for arn in (first, second)] == ["1", "2"]
    return str(second)


def check_the_registered_model(package: str, session: Any, arn: str) -> None:
    """Approve the package, and see that its model leads back to a training job."""
    import boto3

    client = boto3.client("sagemaker")
    client.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved", ApprovalDescription="fine")
    told = client.describe_model_package(ModelPackageName=arn)
    assert (told["ModelApprovalStatus"], told["CustomerMetadataProperties"]) == ("Approved", {"owner": "anna"})
    query, visualizer = load(package, "lineage.query", "lineage.visualizer")
    deadline = time.monotonic() + LIMIT_S
    jobs: list[Any] = []
    while not jobs:
        assert time.monotonic() < deadline, "the model package is not in the lineage"
        listed = client.list_artifacts(SourceUri=arn)["ArtifactSummaries"]
        wanted = query.LineageFilter(sources=[query.LineageSourceEnum.TRAINING_JOB])
        for each in listed:
            found = query.LineageQuery(session).query(
                start_arns=[each["ArtifactArn"]],
                query_filter=wanted,
                direction=query.LineageQueryDirectionEnum.ASCENDANTS,
                include_edges=False,
            )
            jobs = found.vertices
        time.sleep(0.2)
    assert jobs[0].arn.endswith("-aws-training-job")
    # The yard records an approval a moment after it answers.
    kinds: set[str] = set()
    while kinds != {"artifact", "context", "action"}:
        assert time.monotonic() < deadline, f"the lineage of the package has only {sorted(kinds)}"
        table = visualizer.LineageTableVisualizer(session).show(model_package_arn=arn)
        kinds = set(table["Lineage Type"])
    assert {"ModelGroup", "Approval", "Model", "Image"} == set(table["Type"])


def main(package: str) -> None:
    (sessions,) = load(package, "session")
    session = sessions.Session()
    follow_entities(package, session)
    with tempfile.TemporaryDirectory() as folder:
        arn = register_a_model(package, session, Path(folder))
    check_the_registered_model(package, session, arn)


if __name__ == "__main__":
    main(sys.argv[1])
