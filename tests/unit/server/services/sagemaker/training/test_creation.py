import json
import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import IMAGE, channel, create, describe, request
from trainyard.foundation.arns import role_arn
from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.foundation.jobs.training.plan import LaunchPlan, TrainingPlan
from trainyard.server.jobs.quotas import CapacityKind, Quota, Quotas
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Query, ResourceKey
from trainyard.server.roles import SAGEMAKER_FULL_ACCESS
from trainyard.testing.engines.simulated import SimulatedEngine
from trainyard.wire.fault import Fault

CODE = "s3://data/code/sourcedir.tar.gz"
PLAN = "arn:aws:sagemaker:eu-west-3:123456789012:training-plan/mine"
MLFLOW = "arn:aws:sagemaker:eu-west-3:123456789012:mlflow-tracking-server/mine"


def algorithm(**changed: Any) -> dict[str, Any]:
    return {"TrainingImage": IMAGE, "TrainingInputMode": "File", **changed}


def resources(**changed: Any) -> dict[str, Any]:
    return {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, **changed}


def augmented(**changed: Any) -> dict[str, Any]:
    return channel("a", "s3://data/train/1.csv", S3DataType="AugmentedManifestFile", **changed)


def file_system(identifier: str, directory: str = "/sets", access: str = "ro", **changed: Any) -> dict[str, Any]:
    source = {
        "FileSystemId": identifier,
        "FileSystemType": "EFS",
        "FileSystemAccessMode": access,
        "DirectoryPath": directory,
    }
    return {"ChannelName": "sets", "DataSource": {"FileSystemDataSource": source}, **changed}


def script(**changed: str) -> dict[str, str]:
    return {"sagemaker_program": "train.py", "sagemaker_submit_directory": CODE, **changed}


def job_count(user: As) -> int:
    return len(user.yard.records.find(Query(KIND, account=user.account)).resources)


def test_a_job_is_accepted_with_its_arn_and_waits(anna: As) -> None:
    arn = f"arn:aws:sagemaker:eu-west-3:{anna.account}:training-job/mnist"
    assert create(anna) == {"TrainingJobArn": arn}
    told = describe(anna)
    assert (told["TrainingJobArn"], told["TrainingJobStatus"], told["SecondaryStatus"]) == (
        arn,
        "InProgress",
        "Pending",
    )


def test_a_second_job_of_the_name_is_in_use_and_changes_nothing(anna: As) -> None:
    create(anna)
    with pytest.raises(Fault, match=r"unique within an AWS account.*training-job/mnist\)") as caught:
        create(anna, HyperParameters=script(epochs="99"))
    assert caught.value.code == "ResourceInUse"
    assert describe(anna)["HyperParameters"]["epochs"] == "3"


def test_two_users_may_have_jobs_of_one_name(accounts: Accounts, anna: As) -> None:
    create(anna)
    with pytest.raises(Fault, match=r"Requested resource not found\.") as caught:
        describe(accounts.ben)
    assert caught.value.code == "ValidationException"


def test_tags_are_stored_with_the_job(anna: As) -> None:
    arn = create(anna, Tags=[{"Key": "team", "Value": "vision"}])["TrainingJobArn"]
    assert anna.yard.records.tags(anna.account, arn) == {"team": "vision"}


def test_the_sdk_writes_the_program_as_json_and_others_bare(anna: As) -> None:
    create(anna, "bare", HyperParameters=script())
    create(anna, "json")
    for name in ("bare", "json"):
        plan = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, name))).plan
        assert (plan.entry_point, plan.submit_directory) == ("train.py", CODE)


def test_a_command_line_needs_no_code(anna: As) -> None:
    command = algorithm(ContainerEntrypoint=["/bin/sh", "-c"], ContainerArguments=["echo hello"])
    create(anna, AlgorithmSpecification=command, HyperParameters=None)
    plan = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).plan
    assert plan.command == ("/bin/sh", "-c", "echo hello")


@pytest.mark.parametrize("instance_type", ["local", "local_gpu", "ml.p4d.24xlarge", "ml.m5.large"])
def test_instance_types_of_the_catalog_are_known(anna: As, instance_type: str) -> None:
    create(anna, ResourceConfig=resources(InstanceType=instance_type))
    assert describe(anna)["ResourceConfig"]["InstanceType"] == instance_type


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("instance type", {"ResourceConfig": resources(InstanceType="ml.nope")}, '"ml.nope" is not an instance type'),
    ("instance count", {"ResourceConfig": resources(InstanceCount=0)}, "InstanceCount is 0"),
    ("no type", {"ResourceConfig": {"InstanceCount": 1, "VolumeSizeInGB": 1}}, "needs an InstanceType"),
    ("no resources", {"ResourceConfig": None}, "ResourceConfig is required"),
    ("no algorithm", {"AlgorithmSpecification": None}, "AlgorithmSpecification is required"),
    ("no image", {"AlgorithmSpecification": {"TrainingInputMode": "File"}}, "needs a TrainingImage"),
    ("image", {"AlgorithmSpecification": algorithm(TrainingImage="nobody/knows:1")}, "trainyard images map"),
    ("program", {"HyperParameters": {"epochs": "3"}}, "sagemaker_program"),
    ("program outside", {"HyperParameters": script(sagemaker_program="../train.py")}, "in the code"),
    ("no code", {"HyperParameters": {"sagemaker_program": "train.py"}}, "sagemaker_submit_directory"),
    (
        "program that no file is",
        {"HyperParameters": script(sagemaker_program="a\0.py")},
        "sagemaker_program is 'a\\x00.py'; a path can",
    ),
    ("long program", {"HyperParameters": script(sagemaker_program="n" * 256)}, "each name in it at most 255"),
    (
        "code outside of its channel",
        {"HyperParameters": script(sagemaker_submit_directory="/opt/ml/input/data/a/../../../x.tar.gz")},
        'tar.gz"; a path cannot contain ".."',
    ),
    *(
        (
            f"{member} on the host",
            {member: {**given, "LocalPath": "/.host/etc"}},
            'LocalPath is "/.host/etc"; it must be a folder below /opt/ml',
        )
        for member, given in {
            "CheckpointConfig": {"S3Uri": "s3://data/ck"},
            "TensorBoardOutputConfig": {"S3OutputPath": "s3://data/tb"},
            "DebugHookConfig": {"S3OutputPath": "s3://data/tensors"},
        }.items()
    ),
    ("code gone", {"HyperParameters": script(sagemaker_submit_directory="s3://data/none.tar.gz")}, "no object at"),
    ("arguments", {"AlgorithmSpecification": algorithm(ContainerArguments=["x"])}, "ContainerEntrypoint"),
    ("bucket", {"OutputDataConfig": {"S3OutputPath": "s3://nowhere/x"}}, '"nowhere" of S3OutputPath does not exist'),
    ("https", {"OutputDataConfig": {"S3OutputPath": "https://data/x"}}, "not an S3 location"),
    ("empty", {"InputDataConfig": [channel("a", "s3://data/none")]}, 'no objects under "s3://data/none"'),
    ("channel bucket", {"InputDataConfig": [channel("a", "s3://no/x")]}, '"no" of the channel "a" does not exist'),
    ("manifest", {"InputDataConfig": [channel("a", "s3://data/m", S3DataType="ManifestFile")]}, "no object at"),
    (
        "no manifest",
        {"InputDataConfig": [channel("a", "s3://data/train/1.csv", S3DataType="ManifestFile")]},
        "is not a manifest; write a JSON list",
    ),
    ("twice", {"InputDataConfig": [channel("a", "s3://data/train")] * 2}, "more than once"),
    ("dots", {"InputDataConfig": [channel("..", "s3://data/train")]}, "is not a valid channel name"),
    ("no source", {"InputDataConfig": [{"ChannelName": "a", "DataSource": {}}]}, "needs either an S3DataSource or"),
    (
        "gzip",
        {"InputDataConfig": [channel("a", "s3://data/train", CompressionType="Gzip")]},
        "needs the input mode Pipe",
    ),
    (
        "records",
        {"InputDataConfig": [channel("a", "s3://data/train", RecordWrapperType="RecordIO")]},
        "needs the input mode Pipe",
    ),
    ("attributes", {"InputDataConfig": [channel("a", "s3://data/train", AttributeNames=["x"])]}, "need the S3Data"),
    ("augmented", {"InputDataConfig": [augmented()]}, "needs AttributeNames"),
    (
        "augmented file",
        {"InputDataConfig": [augmented(AttributeNames=["x"])]},
        "AugmentedManifestFile needs the input mode Pipe",
    ),
    (
        "augmented fast",
        {"InputDataConfig": [augmented(AttributeNames=["x"], InputMode="FastFile")]},
        "needs the input mode Pipe",
    ),
    ("file system", {"InputDataConfig": [file_system("fs-00000000")]}, "file_systems.toml"),
    ("fast file system", {"InputDataConfig": [file_system("fs-00000000", InputMode="FastFile")]}, "input mode File"),
    ("regex", {"AlgorithmSpecification": algorithm(MetricDefinitions=[{"Name": "l", "Regex": "("}])}, 'metric "l"'),
    (
        "wait without spot",
        {"StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 9}},
        "only for jobs",
    ),
]


@pytest.mark.parametrize(("changed", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_request_that_is_sure_to_fail_is_refused_before_the_job_exists(
    anna: As, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(Fault, match=re.escape(words)) as caught:
        create(anna, **changed)
    assert caught.value.code == "ValidationException"
    assert job_count(anna) == 0


@pytest.mark.parametrize("owner", ["anna", "ben"])
def test_a_missing_role_of_an_account_of_this_yard_cannot_be_assumed(accounts: Accounts, anna: As, owner: str) -> None:
    with pytest.raises(Fault, match="Could not assume role"):
        create(anna, RoleArn=role_arn(getattr(accounts, owner).account, "Nobody"))


def test_a_role_of_another_account_cannot_be_assumed(accounts: Accounts, anna: As) -> None:
    with pytest.raises(Fault, match="Could not assume role"):
        create(anna, RoleArn=role_arn(accounts.ben.account, accounts.ben.caller.role))


@pytest.mark.parametrize("partition", ["aws", "aws-cn"])
def test_the_default_role_stands_for_a_role_of_an_account_outside_the_yard(anna: As, partition: str) -> None:
    arn = f"arn:{partition}:iam::123456789012:role/service-role/AmazonSageMaker-ExecutionRole"
    create(anna, RoleArn=arn)
    job = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist")))
    assert job.plan.role == anna.caller.role
    assert f"The account of {arn} is not one of this yard; the job has your default role TrainyardRole." in job.notes
    assert describe(anna)["RoleArn"] == arn


def test_without_the_default_role_nothing_stands_for_a_role_of_another_account(anna: As) -> None:
    anna("iam", "DetachRolePolicy", RoleName=anna.caller.role, PolicyArn=SAGEMAKER_FULL_ACCESS)
    anna("iam", "DeleteRole", RoleName=anna.caller.role)
    with pytest.raises(Fault, match="your account's default role TrainyardRole was deleted"):
        create(anna, RoleArn="arn:aws:iam::123456789012:role/Nobody")


def test_a_spot_job_cannot_wait_for_less_than_it_may_run(anna: As) -> None:
    times = {"MaxRuntimeInSeconds": 100, "MaxWaitTimeInSeconds": 99}
    with pytest.raises(Fault, match="includes the MaxRuntimeInSeconds of 100"):
        create(anna, EnableManagedSpotTraining=True, StoppingCondition=times)


def test_a_spot_job_is_planned_with_its_time_and_the_ratio_of_its_prices(anna: As) -> None:
    times = {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 9}
    create(anna, EnableManagedSpotTraining=True, StoppingCondition=times)
    plan = plan_of(anna)
    assert (plan.is_spot, plan.max_wait_s) == (True, 9)
    assert plan.billed_share == pytest.approx(0.3, abs=0.01)
    create(anna, "own")
    assert (plan_of(anna, "own").is_spot, plan_of(anna, "own").billed_share) == (False, 1.0)


AWS_ONLY: list[tuple[dict[str, Any], str]] = [
    (
        {"AlgorithmSpecification": {"AlgorithmName": "mine", "TrainingInputMode": "File"}},
        "AlgorithmName names an algorithm of CreateAlgorithm.*name an image as the TrainingImage",
    ),
    ({"ResourceConfig": resources(TrainingPlanArn=PLAN)}, "TrainingPlanArn names capacity that is reserved in AWS"),
    (
        {"ResourceConfig": resources(InstancePlacementConfig={"EnableMultipleJobs": True})},
        "InstancePlacementConfig places instances on UltraServers.*trainyard:spread with the value strict",
    ),
    ({"RemoteDebugConfig": {"EnableRemoteDebug": True}}, "EnableRemoteDebug opens shells through AWS.*trainyard logs"),
    ({"MlflowConfig": {"MlflowResourceArn": MLFLOW}}, "MlflowConfig names .* that AWS manages.*MLFLOW_TRACKING_URI"),
]


@pytest.mark.parametrize(("changed", "words"), AWS_ONLY, ids=lambda value: next(iter(value)))
def test_what_only_aws_has_is_refused_with_what_to_do_instead(anna: As, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(Fault, match=words):
        create(anna, **changed)
    assert job_count(anna) == 0


ECR = "433757028032.dkr.ecr.us-west-2.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "name"),
    [("image-classification:1", "Image Classification"), ("sagemaker-xgboost:1.7-1", "XGBoost"), ("pca", "Principal")],
)
def test_a_built_in_algorithm_is_refused_by_its_name(anna: As, image: str, name: str) -> None:
    asked: dict[str, Any] = {
        "AlgorithmSpecification": algorithm(TrainingImage=f"{ECR}/{image}"),
        "HyperParameters": {"k": "3"},
    }
    refusal = f"is the built-in algorithm {name}.*Trainyard has no built-in algorithms yet"
    with pytest.raises(Fault, match=refusal):
        create(anna, **asked)
    # Only the image of XGBoost runs scripts on SageMaker.
    if "xgboost" not in image:
        with pytest.raises(Fault, match=refusal):
            create(anna, AlgorithmSpecification=algorithm(TrainingImage=f"{ECR}/{image}"), HyperParameters=script())


def test_an_image_of_an_algorithm_runs_a_script_or_what_it_is_mapped_to(anna: As) -> None:
    create(anna, AlgorithmSpecification=algorithm(TrainingImage=f"{ECR}/sagemaker-xgboost:1.7-1"))
    assert anna.yard.compute.images.built_in_algorithm(f"{ECR}/kmeans:1") == "K-Means"
    anna.yard.compute.images.map("kmeans", sys.executable)
    assert anna.yard.compute.images.built_in_algorithm(f"{ECR}/kmeans:1") == ""
    assert anna.yard.compute.images.built_in_algorithm("localhost/knn:1") == ""


def test_options_that_clients_switch_off_are_accepted(anna: As) -> None:
    switched_off: dict[str, Any] = {
        "ResourceConfig": resources(InstancePlacementConfig={"EnableMultipleJobs": False}),
        "RemoteDebugConfig": {"EnableRemoteDebug": False},
        "InfraCheckConfig": {"EnableInfraCheck": False},
        "SessionChainingConfig": {"EnableSessionTagChaining": False},
    }
    create(anna, **switched_off)
    assert describe(anna)["RemoteDebugConfig"] == {"EnableRemoteDebug": False}
    notes = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).notes
    assert not any("Config has no effect" in note for note in notes)


def test_the_input_mode_of_a_channel_is_its_own_or_that_of_the_job(anna: As) -> None:
    fast = algorithm(TrainingInputMode="FastFile")
    channels = [channel("a", "s3://data/train"), channel("b", "s3://data/train", InputMode="File")]
    create(anna, AlgorithmSpecification=fast, InputDataConfig=channels)
    assert [(each.name, each.mode) for each in plan_of(anna).channels] == [("a", "FastFile"), ("b", "File")]


def test_a_file_system_is_planned_with_its_directory_and_access(
    anna: As, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = tmp_path_factory.mktemp("shared")
    (shared / "sets").mkdir()
    home = anna.yard.compute.jobs.parent
    (home / "file_systems.toml").write_text(f'[file_systems]\nfs-00000000 = "{shared}"\n')
    create(anna, InputDataConfig=[file_system("fs-00000000", "/sets/", "rw")])
    (planned,) = plan_of(anna).channels
    assert (planned.file_system, planned.directory, planned.is_writable) == ("fs-00000000", "sets", True)
    with pytest.raises(Fault, match='no directory "/none" in the file system'):
        create(anna, "other", InputDataConfig=[file_system("fs-00000000", "/none")])


def test_a_file_system_mapped_to_a_prefix_is_read_only(anna: As) -> None:
    home = anna.yard.compute.jobs.parent
    (home / "file_systems.toml").write_text('[file_systems]\nfs-00000000 = "s3://data"\n')
    create(anna, InputDataConfig=[file_system("fs-00000000", "/train", "ro")])
    (planned,) = plan_of(anna).channels
    assert (planned.file_system, planned.directory, planned.is_writable) == ("fs-00000000", "train", False)
    with pytest.raises(Fault, match="is mapped to s3://data/train/, which is read-only"):
        create(anna, "writes", InputDataConfig=[file_system("fs-00000000", "/train", "rw")])
    with pytest.raises(Fault, match='no objects under "s3://data/none/"'):
        create(anna, "nothing", InputDataConfig=[file_system("fs-00000000", "/none", "ro")])


@pytest.mark.parametrize(
    ("member", "config"),
    [
        ("CheckpointConfig.S3Uri", {"CheckpointConfig": {"S3Uri": "s3://nowhere/ck"}}),
        ("TensorBoardOutputConfig.S3OutputPath", {"TensorBoardOutputConfig": {"S3OutputPath": "s3://nowhere/tb"}}),
    ],
)
def test_the_buckets_of_synced_folders_must_exist(anna: As, member: str, config: dict[str, Any]) -> None:
    with pytest.raises(Fault, match=rf'The bucket "nowhere" of {member} does not exist'):
        create(anna, **config)


def test_a_launcher_that_is_not_there_is_refused_when_it_is_asked_for(anna: As) -> None:
    with pytest.raises(Fault, match="hyperparameter sagemaker_pytorch_xla_multi_worker_enabled"):
        create(anna, HyperParameters=script(sagemaker_pytorch_xla_multi_worker_enabled="true"))
    create(anna, HyperParameters=script(sagemaker_pytorch_xla_multi_worker_enabled="false"))


def test_a_launcher_is_planned_as_the_hyperparameters_say(anna: As) -> None:
    create(anna, HyperParameters=script(sagemaker_mpi_enabled="true", sagemaker_mpi_num_of_processes_per_host="4"))
    assert plan_of(anna).launch == LaunchPlan(LaunchKind.MPI, 4)


def test_all_that_is_not_served_is_named_at_once(anna: As) -> None:
    asked: dict[str, Any] = {
        "ResourceConfig": resources(TrainingPlanArn=PLAN, InstancePreferences=[{"InstanceType": "ml.m5.large"}]),
        "InputDataConfig": [channel("train", "s3://data/train", S3DataType="Converse")],
    }
    served = r"does not serve \S+S3DataType \S+, ResourceConfig.InstancePreferences yet; .*out them"
    with pytest.raises(Fault, match=f"TrainingPlanArn names capacity .*{served}"):
        create(anna, **asked)


@pytest.mark.parametrize(("gib", "count"), [(30, 0), (280, 1)])
def test_the_size_of_a_volume_is_noted_if_somebody_chose_it(anna: As, gib: int, count: int) -> None:
    create(anna, ResourceConfig=resources(VolumeSizeInGB=gib))
    notes = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).notes
    assert sum("VolumeSizeInGB" in note for note in notes) == count


def test_members_that_clients_send_by_default_are_accepted_returned_and_noted(anna: As) -> None:
    sent: dict[str, Any] = {
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "DebugHookConfig": {"S3OutputPath": "s3://data/debug"},
        "ProfilerConfig": {"S3OutputPath": "s3://data/profile", "ProfilingIntervalInMilliseconds": 1000},
        "InfraCheckConfig": {"EnableInfraCheck": True},
    }
    create(anna, **sent, SessionChainingConfig={"EnableSessionTagChaining": True})
    told = describe(anna)
    assert {member: told[member] for member in sent} == sent
    notes = " ".join(job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).notes)
    for word in ("VpcConfig", "InfraCheck", "SessionChaining"):
        assert word in notes


def test_isolation_is_planned_and_described(anna: As) -> None:
    create(anna, EnableNetworkIsolation=True)
    assert plan_of(anna).is_isolated
    assert describe(anna)["EnableNetworkIsolation"] is True


def test_unavailable_isolation_is_refused_with_the_reason(anna: As) -> None:
    engine = anna.yard.compute.engines.default
    assert isinstance(engine, SimulatedEngine)
    engine.obstacle = "this machine does not allow it"
    with pytest.raises(
        Fault, match="EnableNetworkIsolation is not available here, because this machine does not allow"
    ):
        create(anna, EnableNetworkIsolation=True)
    assert job_count(anna) == 0
    create(anna)


def test_encryption_is_refused_where_there_would_be_traffic_to_encrypt(anna: As) -> None:
    with pytest.raises(Fault, match="EnableInterContainerTrafficEncryption is not available here"):
        create(anna, EnableInterContainerTrafficEncryption=True, ResourceConfig=resources(InstanceCount=2))
    create(anna, EnableInterContainerTrafficEncryption=True)
    assert describe(anna)["EnableInterContainerTrafficEncryption"] is True


def test_the_code_may_come_by_a_channel(anna: As) -> None:
    code = "/opt/ml/input/data/code/sourcedir.tar.gz"
    hyperparameters = script(sagemaker_submit_directory=json.dumps(code))
    with pytest.raises(Fault, match='no File or FastFile channel is named "code"'):
        create(anna, HyperParameters=hyperparameters)
    create(anna, HyperParameters=hyperparameters, InputDataConfig=[channel("code", "s3://data/train")])
    assert plan_of(anna).submit_directory == code


def test_a_job_may_run_for_a_day_by_default(anna: As) -> None:
    create(anna, StoppingCondition={})
    assert describe(anna)["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400}


def test_the_time_of_the_create_is_that_of_the_call(anna: As) -> None:
    create(anna)
    assert describe(anna)["CreationTime"] == NOON


def test_an_instance_type_with_any_name_passes_the_wire_and_is_judged_by_the_catalog(anna: As) -> None:
    shape = request(anna, ResourceConfig=resources(InstanceType="x" * 500))
    with pytest.raises(Fault, match="is not an instance type"):
        anna("sagemaker", "CreateTrainingJob", **shape)


def plan_of(user: As, name: str = "mnist") -> TrainingPlan:
    return job_of(user.yard.records.load(ResourceKey(user.account, KIND, name))).plan


def test_supported_settings_are_in_the_plan_described_and_not_noted(anna: As) -> None:
    sent: dict[str, Any] = {
        "RetryStrategy": {"MaximumRetryAttempts": 2},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 7200},
        "ResourceConfig": resources(KeepAlivePeriodInSeconds=600),
    }
    create(anna, **sent)
    plan = plan_of(anna)
    assert (plan.retries, plan.max_pending_s, plan.keep_alive_s) == (2, 7200, 600)
    told = describe(anna)
    assert {member: told[member] for member in sent} == sent
    notes = " ".join(job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).notes)
    for word in ("Retry", "Pending", "KeepAlive"):
        assert word not in notes


@pytest.mark.parametrize(
    "changed",
    [
        {"RetryStrategy": {"MaximumRetryAttempts": 0}},
        {"RetryStrategy": {"MaximumRetryAttempts": 31}},
        {"StoppingCondition": {"MaxPendingTimeInSeconds": 1799}},
        {"ResourceConfig": resources(KeepAlivePeriodInSeconds=21601)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_limits_are_those_of_the_model(anna: As, changed: dict[str, Any]) -> None:
    with pytest.raises(Fault, match="failed to satisfy constraint"):
        create(anna, **changed)
    assert job_count(anna) == 0


def strict(user: As) -> As:
    return replace(user, yard=replace(user.yard, compute=replace(user.yard.compute, strict=True)))


def test_a_strict_yard_refuses_a_type_that_it_has_less_of(anna: As) -> None:
    large = resources(InstanceType="ml.p4d.24xlarge")
    image = algorithm(TrainingImage="pytorch-training")
    create(anna, "fitted", AlgorithmSpecification=image, ResourceConfig=large)
    with pytest.raises(Fault, match=r"Each ml\.p4d\.24xlarge gets .* This yard is strict") as caught:
        create(strict(anna), "whole", AlgorithmSpecification=image, ResourceConfig=large)
    assert caught.value.code == "ValidationException"
    assert job_count(anna) == 1


def test_a_strict_yard_refuses_another_version_than_the_image_names(anna: As) -> None:
    image = algorithm(TrainingImage="pytorch-training:0.0.1")
    small = resources(InstanceType="local")
    create(anna, "nearest", AlgorithmSpecification=image, ResourceConfig=small)
    with pytest.raises(Fault, match=r"The image pytorch-training:0\.0\.1 maps to .* strict about versions"):
        create(strict(anna), "exact", AlgorithmSpecification=image, ResourceConfig=small)


def test_a_strict_yard_accepts_only_what_it_has_in_full(anna: As) -> None:
    image = algorithm(TrainingImage="pytorch-training")
    create(strict(anna), AlgorithmSpecification=image, ResourceConfig=resources(InstanceType="local"))
    assert job_count(anna) == 1


def test_a_job_above_a_quota_is_refused_with_the_limit_the_use_and_the_command(anna: As) -> None:
    quotas = Quotas(anna.yard.records)
    quotas.put(Quota("anna", "ml.m5.large", CapacityKind.ON_DEMAND, 2), now=NOON)
    create(anna, "first")
    with pytest.raises(Fault) as caught:
        create(anna, "second", ResourceConfig=resources(InstanceCount=2))
    assert (caught.value.code, caught.value.status) == ("ResourceLimitExceeded", 400)
    assert caught.value.message.startswith(
        "The account-level service limit 'ml.m5.large for training job usage' is 2 Instances, with current utilization "
        "of 1 Instances and a request delta of 2 Instances."
    )
    assert "`trainyard quota set anna ml.m5.large 3`" in caught.value.message
    assert job_count(anna) == 1
    create(anna, "third")


def test_a_job_that_has_ended_gives_back_its_quota(anna: As) -> None:
    Quotas(anna.yard.records).put(Quota("*", "*", CapacityKind.ON_DEMAND, 1), now=NOON)
    for name in ("first", "second", "third"):
        create(anna, name)
        anna("sagemaker", "StopTrainingJob", TrainingJobName=name)
        anna("sagemaker", "DeleteTrainingJob", TrainingJobName=name)
    create(anna, "last")
    with pytest.raises(Fault, match="Number of instances across all training jobs"):
        create(anna, "more")
