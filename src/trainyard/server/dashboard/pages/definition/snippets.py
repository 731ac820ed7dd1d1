"""The definition of a job as text to copy: a command, a program of the SDK, a call of boto3, and JSON."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.server.dashboard.pages.definition.request import (
    CODE,
    PROGRAM,
    TOOLKIT_PREFIX,
    decode_hyperparameter,
)
from trainyard.server.services.contract import Shape

_WIDTH = 100
# Members that neither the command line nor the program below repeats.
_NOT_REPEATED = (
    "DebugHookConfig",
    "DebugRuleConfigurations",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
    "TensorBoardOutputConfig",
    "VpcConfig",
    "ExperimentConfig",
    "RetryStrategy",
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A text to copy, with what to know about it."""

    id: str
    title: str
    text: str
    note: str = ""


def snippets_of(request: Shape) -> list[Snippet]:
    found = [Snippet("sdk", "SDK", sdk_program(request), "A program for the SDK of Trainyard.")]
    if PROGRAM in request.get("HyperParameters", {}):
        found.insert(0, Snippet("cli", "Command line", command_line(request), "Gets the code, and runs it again."))
    return [
        *found,
        Snippet("boto3", "boto3", boto3_call(request), "The whole request, for any AWS client."),
        Snippet("json", "JSON", json.dumps(request, indent=2, ensure_ascii=False), "The CreateTrainingJob request."),
    ]


def boto3_call(request: Shape) -> str:
    """Return a program that creates the job with boto3."""
    members = "\n".join(f"    {name}={_python(value, indent=4)}," for name, value in request.items())
    return f'import boto3\n\nsagemaker = boto3.client("sagemaker")\nsagemaker.create_training_job(\n{members}\n)\n'


def command_line(request: Shape) -> str:
    """Return the command that runs the script of a job again, from a copy of its code."""
    values = {name: decode_hyperparameter(text) for name, text in request["HyperParameters"].items()}
    lines = list[str]()
    code = values.get(CODE)
    if isinstance(code, str) and code.startswith("s3://"):
        lines.append(f"mkdir -p code && aws s3 cp {shlex.quote(code)} - | tar -xz -C code")
    words = [["trainyard", "run", str(values[PROGRAM]), "-s", "code"], *_options(request)]
    own = [[f"--{name}", _word(value)] for name, value in values.items() if not name.startswith(TOOLKIT_PREFIX)]
    if own:
        words += [["--"], *own]
    lines.append(" \\\n  ".join(shlex.join(each) for each in words))
    return "\n".join([*lines, *_comment(request)]) + "\n"


def sdk_program(request: Shape) -> str:
    """Return a program that creates the job with the SDK."""
    texts, algorithm = request.get("HyperParameters", {}), request["AlgorithmSpecification"]
    resources, stopping = request["ResourceConfig"], request["StoppingCondition"]
    is_script = PROGRAM in texts
    values = {name: decode_hyperparameter(text) if is_script else text for name, text in texts.items()}
    own = {name: value for name, value in values.items() if not (is_script and name.startswith(TOOLKIT_PREFIX))}
    groups = [
        f"InstanceGroup({_short(each['InstanceGroupName'])}, {_short(each['InstanceType'])}, {each['InstanceCount']})"
        for each in resources.get("InstanceGroups", ())
    ]
    arguments = {
        "image_uri": algorithm.get("TrainingImage"),
        "entry_point": values.get(PROGRAM),
        "source_dir": values.get(CODE) if is_script else None,
        "container_entry_point": algorithm.get("ContainerEntrypoint"),
        "container_arguments": algorithm.get("ContainerArguments"),
        "role": request["RoleArn"],
        "instance_type": resources.get("InstanceType"),
        "instance_count": resources.get("InstanceCount"),
        "volume_size": resources.get("VolumeSizeInGB"),
        "keep_alive_period_in_seconds": resources.get("KeepAlivePeriodInSeconds"),
        "max_run": stopping["MaxRuntimeInSeconds"],
        "use_spot_instances": request.get("EnableManagedSpotTraining"),
        "max_wait": stopping.get("MaxWaitTimeInSeconds"),
        "enable_network_isolation": request.get("EnableNetworkIsolation"),
        "hyperparameters": own,
        "environment": request.get("Environment"),
        "tags": request.get("Tags"),
        "metric_definitions": algorithm.get("MetricDefinitions"),
        "input_mode": algorithm.get("TrainingInputMode"),
        "output_path": request["OutputDataConfig"]["S3OutputPath"],
        "disable_output_compression": request["OutputDataConfig"].get("CompressionType") == "NONE",
        "checkpoint_s3_uri": request.get("CheckpointConfig", {}).get("S3Uri"),
        "checkpoint_local_path": request.get("CheckpointConfig", {}).get("LocalPath"),
        "distribution": _distribution(values) if is_script else None,
    }
    kind = "PyTorch" if is_script else "Estimator"
    lines = [f"    {name}={_python(value, indent=4)}," for name, value in arguments.items() if value]
    if groups:
        lines.append(f"    instance_groups=[{', '.join(groups)}],")
    channels = list(_training_inputs(request))
    imports = [
        *(["from trainyard.estimator import Estimator"] if kind == "Estimator" else []),
        *(["from trainyard.inputs import TrainingInput"] if channels else []),
        *(["from trainyard.instance_group import InstanceGroup"] if groups else []),
        *(["from trainyard.pytorch import PyTorch"] if kind == "PyTorch" else []),
    ]
    inputs = ["    {", *channels, "    },"] if channels else []
    return "\n".join(
        [
            *imports,
            "",
            f"estimator = {kind}(",
            *lines,
            ")",
            "estimator.fit(",
            *inputs,
            f"    job_name={_short(request['TrainingJobName'])},",
            ")",
            *_comment(request),
            "",
        ]
    )


def _options(request: Shape) -> Iterator[list[str]]:
    resources, stopping = request["ResourceConfig"], request["StoppingCondition"]
    yield ["--name", request["TrainingJobName"]]
    for group in resources.get("InstanceGroups", ()):
        yield ["--group", f"{group['InstanceGroupName']}={group['InstanceType']}:{group['InstanceCount']}"]
    if "InstanceType" in resources:
        yield ["--it", resources["InstanceType"]]
        yield ["--ic", str(resources.get("InstanceCount", 1))]
    yield ["--image-uri", request["AlgorithmSpecification"].get("TrainingImage", "")]
    yield ["--max-run-mins", str(max(1, -(-stopping["MaxRuntimeInSeconds"] // 60)))]
    if request.get("EnableManagedSpotTraining"):
        yield ["--spot"]
        if "MaxWaitTimeInSeconds" in stopping:
            yield ["--max-wait-mins", str(-(-stopping["MaxWaitTimeInSeconds"] // 60))]
    if request.get("EnableNetworkIsolation"):
        yield ["--isolated"]
    if uri := request.get("CheckpointConfig", {}).get("S3Uri"):
        yield ["--checkpoint-s3-uri", uri]
    for channel in request.get("InputDataConfig", ()):
        if "S3DataSource" in channel["DataSource"] and channel["ChannelName"] != "code":
            mode = [channel["InputMode"]] if "InputMode" in channel else []
            yield ["--iis", channel["ChannelName"], channel["DataSource"]["S3DataSource"]["S3Uri"], *mode]
    for metric in request["AlgorithmSpecification"].get("MetricDefinitions", ()):
        yield ["--md", metric["Name"], metric["Regex"]]
    for tag in request.get("Tags", ()):
        yield ["--tag", tag["Key"], tag["Value"]]


def _training_inputs(request: Shape) -> Iterator[str]:
    for channel in request.get("InputDataConfig", ()):
        source = channel["DataSource"].get("S3DataSource")
        if source is None:
            continue
        given = {
            "distribution": source.get("S3DataDistributionType"),
            "s3_data_type": source.get("S3DataType") if source.get("S3DataType") != "S3Prefix" else None,
            "content_type": channel.get("ContentType"),
            "input_mode": channel.get("InputMode"),
        }
        more = "".join(f", {name}={_short(value)}" for name, value in given.items() if value)
        yield f"        {_short(channel['ChannelName'])}: TrainingInput({_short(source['S3Uri'])}{more}),"


def _distribution(values: dict[str, Any]) -> dict[str, Any] | None:
    if values.get("sagemaker_torch_distributed_enabled"):
        return {"torch_distributed": {"enabled": True}}
    if values.get("sagemaker_mpi_enabled"):
        per_host = values.get("sagemaker_mpi_num_of_processes_per_host", 1)
        return {"mpi": {"enabled": True, "processes_per_host": per_host}}
    if values.get("sagemaker_parameter_server_enabled"):
        return {"parameter_server": {"enabled": True}}
    return None


def _comment(request: Shape) -> list[str]:
    left_out = [name for name in _NOT_REPEATED if name in request]
    return [f"# Without {', '.join(left_out)}, which the request for boto3 has."] if left_out else []


def _python(value: Any, *, indent: int) -> str:
    """Return a value as an expression, with a line for each item where it is long."""
    short = _short(value)
    if len(short) + indent <= _WIDTH or not isinstance(value, dict | list) or not value:
        return short
    inner = indent + 4
    if isinstance(value, dict):
        items = [f"{_short(name)}: {_python(member, indent=inner)}" for name, member in value.items()]
    else:
        items = [_python(member, indent=inner) for member in value]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    lines = "".join(f"{' ' * inner}{item},\n" for item in items)
    return f"{opened}\n{lines}{' ' * indent}{closed}"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_short(name)}: {_short(member)}' for name, member in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    # A string of JSON is one of Python, too.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
