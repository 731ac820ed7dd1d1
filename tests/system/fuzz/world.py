"""One user's resources in a yard: one of every kind that an operation can name."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config

from trainyard.server.lineage.entities import artifact_id
from trainyard.testing.eventually import eventually
from trainyard.wire.client import Client

DAY = timedelta(days=1)
RULES = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"


@dataclass(frozen=True)
class User:
    """A user of a yard with a key pair, and boto3 clients that use it."""

    endpoint: str
    account: str
    name: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str = "us-east-1"

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=self.region,
            config=Config(retries={"total_max_attempts": 1}),
        )

    def add_user(self, name: str) -> "User":
        """Create another user, which only an administrator can do."""
        iam = self.client("iam")
        account = iam.create_user(UserName=name)["User"]["Arn"].split(":")[4]
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return User(self.endpoint, account, name, key["AccessKeyId"], key["SecretAccessKey"], self.region)


@dataclass(frozen=True)
class World:
    """The names of one user's resources. All begin with a word that occurs in no other name of the yard."""

    word: str
    account: str
    user: str
    access_key_id: str
    upload_id: str
    secret: str = "nothing kept"

    @property
    def bucket(self) -> str:
        return f"{self.word}-bucket"

    @property
    def key(self) -> str:
        return f"{self.word}-key"

    @property
    def group(self) -> str:
        return f"/{self.word}/group"

    @property
    def source_uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    @property
    def artifact(self) -> str:
        """The id of the artifact of an object, which follows from its location."""
        return artifact_id(self.source_uri)

    @property
    def names(self) -> dict[str, list[str]]:
        """Names by member name in lower case. Every world has equally many, so the same seed picks the same ones."""
        word, account = self.word, self.account
        group_arn = f"arn:aws:logs:us-east-1:{account}:log-group:{self.group}"
        role_arn = f"arn:aws:iam::{account}:role/{word}-role"
        sagemaker = f"arn:aws:sagemaker:us-east-1:{account}"
        artifact, package = f"{sagemaker}:artifact/{self.artifact}", f"{sagemaker}:model-package/{word}-models/1"
        named = {
            "bucket": self.bucket,
            "key": self.key,
            "copysource": f"{self.bucket}/{self.key}",
            "uploadid": self.upload_id,
            "prefix": word,
            "startafter": f"{word}-",
            "marker": "",
            "keymarker": "",
            "delimiter": "/",
            "expectedbucketowner": account,
            "expectedsourcebucketowner": account,
            "rolename": f"{word}-role",
            "rolearn": role_arn,
            "rolesessionname": "session",
            "policyname": f"{word}-policy",
            "policyarn": f"arn:aws:iam::{account}:policy/{word}-policy",
            "username": self.user,
            "accesskeyid": self.access_key_id,
            "path": "/",
            "pathprefix": "/",
            "assumerolepolicydocument": trust_document(),
            "permissionsboundary": f"arn:aws:iam::{account}:policy/{word}-policy",
            "instanceprofilename": f"{word}-profile",
            "loggroupname": self.group,
            "loggroupidentifier": self.group,
            "loggroupidentifiers": self.group,
            "loggrouparn": group_arn,
            "loggroupnameprefix": self.group,
            "logstreamname": f"{word}/stream",
            "logstreamnameprefix": word,
            "namespace": f"{word}/metrics",
            "metricname": f"{word}-loss",
            "id": "m1",
            "stat": "Average",
            "etag": hashlib.md5(b"part").hexdigest(),
            "trainingjobname": f"{word}-job",
            "trainingjobnames": f"{word}-job",
            "hyperparametertuningjobname": f"{word}-tuning",
            "experimentname": f"{word}-experiment",
            "trialname": f"{word}-trial",
            "trialcomponentname": f"{word}-component",
            "instancetype": "ml.m5.large",
            "ruleconfigurationname": f"{word}-rule",
            "ruleevaluatorimage": RULES,
            "collectionname": "losses",
            "namecontains": word,
            "s3uri": f"s3://{self.bucket}/{self.key}",
            "s3outputpath": f"s3://{self.bucket}",
            "resourcearnlist": f"arn:aws:s3:::{self.bucket}",
            "repositoryname": f"{word}/images",
            "repositorynames": f"{word}/images",
            "registryid": account,
            "registryids": account,
            "artifactarn": artifact,
            "sourceuri": self.source_uri,
            "contextname": f"{word}-context",
            "actionname": f"{word}-action",
            "sourcearn": artifact,
            "destinationarn": f"{sagemaker}:context/{word}-context",
            "startarns": artifact,
            "modelpackagegroupname": f"{word}-models",
            "modelpackagename": f"{word}-package",
            "modelpackagearn": package,
            "modelpackagearnlist": package,
            "modeldataurl": self.source_uri,
        }
        several = {
            "versionid": ["null", "v1"],
            "policydocument": [policy_document(), trust_document()],
            "resourcearn": [
                group_arn,
                f"arn:aws:sagemaker:us-east-1:{account}:training-job/{word}-job",
                f"arn:aws:sagemaker:us-east-1:{account}:hyper-parameter-tuning-job/{word}-tuning",
                f"arn:aws:sagemaker:us-east-1:{account}:experiment/{word}-experiment",
                f"arn:aws:sagemaker:us-east-1:{account}:experiment-trial-component/{word}-component",
                f"arn:aws:ecr:us-east-1:{account}:repository/{word}/images",
                artifact,
                f"{sagemaker}:action/{word}-action",
                package,
            ],
        }
        return {name: [value] for name, value in named.items()} | several

    @property
    def words(self) -> dict[str, str]:
        """What nobody else may ever learn, by kind."""
        return {
            "word": self.word,
            "account": self.account,
            "user": self.user,
            "access key": self.access_key_id,
            "upload": self.upload_id,
            "secret": self.secret,
            "artifact": self.artifact,
        }


def build_world(user: User, word: str, *, secret: str) -> World:
    """Create one resource of each kind, with the secret in every one that can hold text."""
    s3 = user.client("s3")
    bucket, key = f"{word}-bucket", f"{word}-key"
    tags = [{"Key": "secret", "Value": secret}]
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    s3.put_object(Bucket=bucket, Key=key, Body=secret.encode(), Metadata={"secret": secret}, Tagging=f"secret={secret}")
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=secret.encode())
    _build_identities(user, word, secret)
    _build_logs(user, word, secret)
    _build_metrics(user, word)
    user.client("ecr").create_repository(repositoryName=f"{word}/images", tags=tags)
    _build_job(user, word, secret)
    _build_tuning_job(user, word, secret)
    _build_lineage(user, word, secret)
    _build_models(user, word, secret)
    _build_experiment(user, word, secret)
    return World(word, user.account, user.name, user.access_key_id, upload, secret)


def _build_identities(user: User, word: str, secret: str) -> None:
    iam = user.client("iam")
    document = policy_document(secret)
    tags = [{"Key": "secret", "Value": secret}]
    iam.create_role(
        RoleName=f"{word}-role",
        AssumeRolePolicyDocument=trust_document(secret),
        Description=secret,
        Tags=tags,
        MaxSessionDuration=3600,
    )
    named = {"PolicyName": f"{word}-policy", "PolicyDocument": document, "Description": secret, "Tags": tags}
    policy = iam.create_policy(**named)["Policy"]["Arn"]
    profile = f"{word}-profile"
    iam.create_instance_profile(InstanceProfileName=profile, Tags=tags)
    iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=f"{word}-role")
    iam.tag_user(UserName=user.name, Tags=tags)
    iam.attach_role_policy(RoleName=f"{word}-role", PolicyArn=policy)
    iam.put_role_policy(RoleName=f"{word}-role", PolicyName=f"{word}-policy", PolicyDocument=document)


def _build_logs(user: User, word: str, secret: str) -> None:
    logs = user.client("logs")
    group, stream = f"/{word}/group", f"{word}/stream"
    logs.create_log_group(logGroupName=group, tags={"secret": secret})
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    event = {"timestamp": int(time.time() * 1000), "message": secret}
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])


def _build_metrics(user: User, word: str) -> None:
    user.client("cloudwatch").put_metric_data(
        Namespace=f"{word}/metrics", MetricData=[{"MetricName": f"{word}-loss", "Value": 1.0, "Unit": "Count"}]
    )


def _build_job(user: User, word: str, secret: str) -> None:
    """Create a training job that has ended, so that it does not change."""
    sagemaker, name = user.client("sagemaker"), f"{word}-job"
    sagemaker.create_training_job(
        TrainingJobName=name,
        RoleArn=f"arn:aws:iam::{user.account}:role/{word}-role",
        AlgorithmSpecification={
            "TrainingImage": "pytorch-training:2.6",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c", f"echo {secret}; echo loss=1"],
            "MetricDefinitions": [{"Name": f"{word}-loss", "Regex": "loss=([0-9]+)"}],
        },
        HyperParameters={"note": secret},
        OutputDataConfig={"S3OutputPath": f"s3://{word}-bucket/out"},
        ResourceConfig={"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
        Environment={"SECRET": secret},
        DebugHookConfig={"S3OutputPath": f"s3://{word}-bucket/debug"},
        DebugRuleConfigurations=[
            {
                "RuleConfigurationName": secret,
                "RuleEvaluatorImage": RULES,
                "RuleParameters": {"rule_to_invoke": "VanishingGradient"},
            }
        ],
        Tags=[{"Key": "secret", "Value": secret}],
    )
    eventually(lambda: sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "Completed")


def _build_tuning_job(user: User, word: str, secret: str) -> None:
    """Create a tuning job that has ended, from that training job."""
    with _api(user) as api:
        api.call(
            "trainyard",
            "AdoptTrainingJobs",
            HyperParameterTuningJobName=f"{word}-tuning",
            Objective={"Type": "Minimize", "MetricName": f"{word}-loss"},
            ParameterRanges={"CategoricalParameterRanges": [{"Name": "note", "Values": [secret, "other"]}]},
            TrainingJobNames=[f"{word}-job"],
        )
    arn = f"arn:aws:sagemaker:{user.region}:{user.account}:hyper-parameter-tuning-job/{word}-tuning"
    user.client("sagemaker").add_tags(ResourceArn=arn, Tags=[{"Key": "secret", "Value": secret}])


def _build_lineage(user: User, word: str, secret: str) -> None:
    sagemaker, tags = user.client("sagemaker"), [{"Key": "secret", "Value": secret}]
    source = {"SourceUri": f"s3://{word}-bucket/{word}-key"}
    more = {"Properties": {"secret": secret}, "Tags": tags}
    artifact = sagemaker.create_artifact(Source=source, ArtifactType="DataSet", **more)["ArtifactArn"]
    named = {"ContextName": f"{word}-context", "ContextType": secret}
    context = sagemaker.create_context(Source=source, Description=secret, **named, **more)["ContextArn"]
    sagemaker.create_action(ActionName=f"{word}-action", ActionType=secret, Source=source, Description=secret, **more)
    sagemaker.add_association(SourceArn=artifact, DestinationArn=context)


def _build_models(user: User, word: str, secret: str) -> None:
    sagemaker, tags = user.client("sagemaker"), [{"Key": "secret", "Value": secret}]
    group = {"ModelPackageGroupName": f"{word}-models"}
    sagemaker.create_model_package_group(ModelPackageGroupDescription=secret, Tags=tags, **group)
    container = {"Image": secret, "ModelDataUrl": f"s3://{word}-bucket/{word}-key"}
    sagemaker.create_model_package(
        ModelPackageDescription=secret,
        InferenceSpecification={"Containers": [container]},
        CustomerMetadataProperties={"secret": secret},
        **group,
    )


def _build_experiment(user: User, word: str, secret: str) -> None:
    """Create an experiment with a trial and a component in it."""
    sagemaker, tags = user.client("sagemaker"), [{"Key": "secret", "Value": secret}]
    experiment, trial, component = (f"{word}-{kind}" for kind in ("experiment", "trial", "component"))
    sagemaker.create_experiment(ExperimentName=experiment, Description=secret, Tags=tags)
    sagemaker.create_trial(TrialName=trial, ExperimentName=experiment, Tags=tags)
    parameters = {"note": {"StringValue": secret}}
    sagemaker.create_trial_component(TrialComponentName=component, Parameters=parameters, Tags=tags)
    sagemaker.associate_trial_component(TrialComponentName=component, TrialName=trial)


def _api(user: User) -> "closing[Client]":
    return closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region))


def policy_document(identifier: str = "policy") -> str:
    return _document(identifier, {"Effect": "Allow", "Action": "*", "Resource": "*"})


def trust_document(identifier: str = "trust") -> str:
    principal = {"Service": "x.amazonaws.com"}
    return _document(identifier, {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"})


def _document(identifier: str, statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Id": identifier, "Statement": [statement]})


def ghost_of(world: World, word: str) -> World:
    """Return names of the same form as those of a world, for resources that do not exist."""
    return World(
        word=word,
        account=_shifted(world.account),
        user=_shifted(world.user),
        access_key_id=_shifted(world.access_key_id),
        upload_id=_shifted(world.upload_id),
    )


def _shifted(text: str) -> str:
    """Return another text of the same alphabet: shift letters and digits by one."""
    alphabets = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789")
    moved = {a: alphabet[(index + 1) % len(alphabet)] for alphabet in alphabets for index, a in enumerate(alphabet)}
    return "".join(moved.get(character, character) for character in text)


def snapshot(user: User, world: World) -> dict[str, Any]:
    """Return everything that the owner sees of the world."""
    return dict(_views(user, world))


def _views(user: User, world: World) -> Iterator[tuple[str, Any]]:
    s3, iam, logs = (user.client(service) for service in ("s3", "iam", "logs"))
    place = {"Bucket": world.bucket, "Key": world.key}
    yield "buckets", [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    yield "bucket tags", s3.get_bucket_tagging(Bucket=world.bucket)["TagSet"]
    yield "objects", s3.list_objects_v2(Bucket=world.bucket)["Contents"]
    got = s3.get_object(**place)
    yield "object", (got["Body"].read(), got["Metadata"], got["ETag"], got["LastModified"])
    yield "object tags", s3.get_object_tagging(**place)["TagSet"]
    yield (
        "uploads",
        [(each["Key"], each["UploadId"]) for each in s3.list_multipart_uploads(Bucket=world.bucket)["Uploads"]],
    )
    yield "parts", s3.list_parts(**place, UploadId=world.upload_id)["Parts"]
    role = {"RoleName": f"{world.word}-role"}
    yield "role", iam.get_role(**role)["Role"]
    yield "attached", iam.list_attached_role_policies(**role)["AttachedPolicies"]
    yield "inline", iam.get_role_policy(**role, PolicyName=f"{world.word}-policy")["PolicyDocument"]
    yield "roles", [each["RoleName"] for each in iam.list_roles()["Roles"]]
    yield "policies", iam.list_policies(Scope="Local")["Policies"]
    yield "profiles", iam.list_instance_profiles()["InstanceProfiles"]
    yield "profile tags", iam.list_instance_profile_tags(InstanceProfileName=f"{world.word}-profile")["Tags"]
    yield "user", iam.get_user()["User"]
    yield "keys", iam.list_access_keys()["AccessKeyMetadata"]
    group = {"logGroupName": world.group}
    yield "groups", logs.describe_log_groups()["logGroups"]
    yield "streams", logs.describe_log_streams(**group)["logStreams"]
    yield "events", logs.get_log_events(**group, logStreamName=f"{world.word}/stream", startFromHead=True)["events"]
    yield "group tags", logs.list_tags_log_group(**group)["tags"]
    sagemaker = user.client("sagemaker")
    yield "experiments", sagemaker.list_experiments()["ExperimentSummaries"]
    yield "trials", sagemaker.list_trials(ExperimentName=f"{world.word}-experiment")["TrialSummaries"]
    component = sagemaker.describe_trial_component(TrialComponentName=f"{world.word}-component")
    yield "component", {name: value for name, value in component.items() if name != "ResponseMetadata"}
    yield "components", sagemaker.list_trial_components(TrialName=f"{world.word}-trial")["TrialComponentSummaries"]
    repositories = user.client("ecr").describe_repositories()["repositories"]
    yield "repositories", repositories
    arns = [each["repositoryArn"] for each in repositories]
    yield from _model_views(user, world)
    yield "repository tags", [user.client("ecr").list_tags_for_resource(resourceArn=arn)["tags"] for arn in arns]
    yield from _metric_views(user, world)
    sagemaker, job = user.client("sagemaker"), {"TrainingJobName": f"{world.word}-job"}
    told = sagemaker.describe_training_job(**job)
    yield "job", {member: value for member, value in told.items() if member != "ResponseMetadata"}
    yield "jobs", sagemaker.list_training_jobs()["TrainingJobSummaries"]
    yield from _own_views(user, world)
    yield from _tuning_views(sagemaker, f"{world.word}-tuning")
    yield "job tags", sagemaker.list_tags(ResourceArn=told["TrainingJobArn"])["Tags"]
    yield "tagged", user.client("resourcegroupstaggingapi").get_resources()["ResourceTagMappingList"]


def _tuning_views(sagemaker: Any, name: str) -> Iterator[tuple[str, Any]]:
    tuning = {"HyperParameterTuningJobName": name}
    told = sagemaker.describe_hyper_parameter_tuning_job(**tuning)
    yield "tuning job", {member: value for member, value in told.items() if member != "ResponseMetadata"}
    yield "tuning jobs", sagemaker.list_hyper_parameter_tuning_jobs()["HyperParameterTuningJobSummaries"]
    trials = sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(**tuning)
    yield "trials", trials["TrainingJobSummaries"]
    yield "tuning tags", sagemaker.list_tags(ResourceArn=told["HyperParameterTuningJobArn"])["Tags"]


def _own_views(user: User, world: World) -> Iterator[tuple[str, Any]]:
    """Return what the yard's own API shows."""
    job = f"{world.word}-job"
    with _api(user) as api:
        told = api.call("trainyard", "DescribeJob", TrainingJobName=job)
        yield "job of the yard", {member: value for member, value in told.items() if member != "ResponseMetadata"}
        tuning = api.call("trainyard", "DescribeTuningJob", HyperParameterTuningJobName=f"{world.word}-tuning")
        yield "tuning job of the yard", {name: value for name, value in tuning.items() if name != "ResponseMetadata"}
        yield "quotas", api.call("trainyard", "ListQuotas")["Quotas"]
        yield "spot", api.call("trainyard", "DescribeSpot")["Types"]
        with api.stream("trainyard", "FollowJob", TrainingJobName=job) as lines:
            yield "followed", list(lines)


def _metric_views(user: User, world: World) -> Iterator[tuple[str, Any]]:
    cloudwatch = user.client("cloudwatch")
    yield "metrics", cloudwatch.list_metrics()["Metrics"]
    noon = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    points = cloudwatch.get_metric_statistics(
        Namespace=f"{world.word}/metrics",
        MetricName=f"{world.word}-loss",
        StartTime=noon - DAY,
        EndTime=noon + 2 * DAY,
        Period=86400,
        Statistics=["Sum", "SampleCount"],
    )["Datapoints"]
    yield "points", sorted((point["Sum"], point["SampleCount"]) for point in points)


def _model_views(user: User, world: World) -> Iterator[tuple[str, Any]]:
    sagemaker, word = user.client("sagemaker"), world.word
    arn = f"arn:aws:sagemaker:{user.region}:{user.account}:artifact/{world.artifact}"
    artifact = sagemaker.describe_artifact(ArtifactArn=arn)
    yield "artifact", (artifact["Properties"], artifact["LastModifiedTime"])
    yield "context", sagemaker.describe_context(ContextName=f"{word}-context")["LastModifiedTime"]
    yield "action", sagemaker.describe_action(ActionName=f"{word}-action")["LastModifiedTime"]
    yield "associations", sagemaker.list_associations(SourceArn=arn)["AssociationSummaries"]
    yield "model group", sagemaker.list_model_package_groups()["ModelPackageGroupSummaryList"]
    package = sagemaker.describe_model_package(ModelPackageName=f"{word}-models/1")
    yield "model package", (package["ModelApprovalStatus"], package["LastModifiedTime"])
