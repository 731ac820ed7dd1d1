"""The definition of a job as people read it: titled sections of facts and tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.server.dashboard.job_frame import JobFrame
from trainyard.server.dashboard.pages.definition.request import (
    CODE,
    PROGRAM,
    TOOLKIT_PREFIX,
    decode_hyperparameter,
)
from trainyard.server.dashboard.rendering import format_duration
from trainyard.server.services.contract import Shape

_DEFAULT_WEIGHT = "FullyReplicated"


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of a section. `link` leads to more about it."""

    name: str
    value: str
    link: str = ""
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class DefinitionSection:
    """A part of a definition. Without facts and rows, the note says so."""

    title: str
    facts: list[Fact] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    note: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.facts and not self.rows


def sections_of(job: JobFrame, request: Shape) -> list[DefinitionSection]:
    hyperparameters = _own_hyperparameters(request)
    return [
        DefinitionSection("Hyperparameters", rows=hyperparameters, note="The job has no hyperparameters of its own."),
        DefinitionSection("Program", list(_program(job, request)), note=""),
        DefinitionSection("Instances", list(_instances(job, request))),
        DefinitionSection(
            "Data",
            columns=("Channel", "Location", "Mode", "Distribution"),
            rows=list(_channels(request)),
            note="The job reads no data from channels.",
        ),
        DefinitionSection("Results", list(_results(request))),
        DefinitionSection(
            "Environment",
            rows=sorted(request.get("Environment", {}).items()),
            note="The job sets no environment variables.",
        ),
        DefinitionSection(
            "Tags", rows=[(tag["Key"], tag["Value"]) for tag in request.get("Tags", ())], note="The job has no tags."
        ),
        *_optional_sections(request),
    ]


def _own_hyperparameters(request: Shape) -> list[tuple[str, ...]]:
    values = request.get("HyperParameters", {})
    is_script = PROGRAM in values
    return [
        (name, _text(decode_hyperparameter(text)) if is_script else text)
        for name, text in sorted(values.items())
        if not (is_script and name.startswith(TOOLKIT_PREFIX))
    ]


def _program(job: JobFrame, request: Shape) -> Iterator[Fact]:
    values, algorithm = request.get("HyperParameters", {}), request["AlgorithmSpecification"]
    if PROGRAM in values:
        yield Fact("Script", _text(decode_hyperparameter(values[PROGRAM])), is_code=True)
    if CODE in values:
        uri = _text(decode_hyperparameter(values[CODE]))
        link = f"{job.address}/files?place=code" if uri.startswith("s3://") else ""
        yield Fact("Code", uri, link=link, is_code=True)
    if command := [*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ())]:
        yield Fact("Command", " ".join(command), is_code=True)
    for title, member in (("Image", "TrainingImage"), ("Algorithm", "AlgorithmName")):
        if member in algorithm:
            yield Fact(title, algorithm[member], is_code=True)
    yield Fact("Engine", job.details.get("Engine", ""))
    for name, text in sorted(values.items()):
        if PROGRAM in values and name.startswith(TOOLKIT_PREFIX) and name not in (PROGRAM, CODE):
            yield Fact(name, _text(decode_hyperparameter(text)), is_code=True)


def _instances(job: JobFrame, request: Shape) -> Iterator[Fact]:
    resources, stopping = request["ResourceConfig"], request["StoppingCondition"]
    for group in resources.get("InstanceGroups", ()):
        yield Fact(group["InstanceGroupName"], f"{group['InstanceCount']} x {group['InstanceType']}")
    if "InstanceType" in resources:
        yield Fact("Instances", f"{resources.get('InstanceCount', 1)} x {resources['InstanceType']}")
    yield Fact("Volume", f"{resources.get('VolumeSizeInGB', 0)} GB each")
    yield Fact("Capacity", "spot" if job.is_spot else "on demand")
    yield Fact("Time limit", format_duration(stopping["MaxRuntimeInSeconds"]))
    if "MaxWaitTimeInSeconds" in stopping:
        yield Fact("Limit with waiting", format_duration(stopping["MaxWaitTimeInSeconds"]))
    if seconds := resources.get("KeepAlivePeriodInSeconds"):
        yield Fact("Warm workers kept", format_duration(seconds))
    if attempts := request.get("RetryStrategy", {}).get("MaximumRetryAttempts"):
        yield Fact("Retries", str(attempts))
    yield Fact("Network", "isolated" if request.get("EnableNetworkIsolation") else "of the machine")
    yield Fact("Role", request["RoleArn"], is_code=True)


def _channels(request: Shape) -> Iterator[tuple[str, ...]]:
    mode = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
    for channel in request.get("InputDataConfig", ()):
        source = channel["DataSource"].get("S3DataSource", {})
        system = channel["DataSource"].get("FileSystemDataSource", {})
        where = source.get("S3Uri") or f"{system.get('FileSystemId', '')}{system.get('DirectoryPath', '')}"
        given = source.get("S3DataDistributionType", _DEFAULT_WEIGHT)
        yield channel["ChannelName"], where, channel.get("InputMode", mode), given


def _results(request: Shape) -> Iterator[Fact]:
    output, checkpoints = request["OutputDataConfig"], request.get("CheckpointConfig", {})
    yield Fact("Output", output["S3OutputPath"], is_code=True)
    if output.get("CompressionType") == "NONE":
        yield Fact("Compression", "none: every file is an object")
    if "KmsKeyId" in output:
        yield Fact("Key", output["KmsKeyId"], is_code=True)
    if "S3Uri" in checkpoints:
        yield Fact("Checkpoints", checkpoints["S3Uri"], is_code=True)
        yield Fact("Checkpoint folder", checkpoints.get("LocalPath", "/opt/ml/checkpoints"), is_code=True)
    for member, title in (("TensorBoardOutputConfig", "TensorBoard"), ("DebugHookConfig", "Tensors")):
        if member in request:
            yield Fact(title, request[member]["S3OutputPath"], is_code=True)


def _optional_sections(request: Shape) -> Iterator[DefinitionSection]:
    metrics = request["AlgorithmSpecification"].get("MetricDefinitions", ())
    if metrics:
        yield DefinitionSection(
            "Metrics", columns=("Metric", "Regular expression"), rows=[(e["Name"], e["Regex"]) for e in metrics]
        )
    rules = [*request.get("DebugRuleConfigurations", ()), *request.get("ProfilerRuleConfigurations", ())]
    if rules:
        rows = [(rule["RuleConfigurationName"], _parameters(rule.get("RuleParameters", {}))) for rule in rules]
        yield DefinitionSection("Rules", columns=("Rule", "Parameters"), rows=rows)
    if collections := request.get("DebugHookConfig", {}).get("CollectionConfigurations"):
        rows = [(each["CollectionName"], _parameters(each.get("CollectionParameters", {}))) for each in collections]
        yield DefinitionSection("Captured tensors", columns=("Collection", "Parameters"), rows=rows)


def _parameters(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
