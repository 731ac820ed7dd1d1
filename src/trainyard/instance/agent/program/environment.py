"""The environment of a training program: platform variables, the SM_* variables, and the arguments of the script.

The SM_* variables are those of version 5.1.4 of the sagemaker-training toolkit, which existing scripts read.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.instance.agent.program.configuration import (
    decode_hyperparameters,
    input_data_config,
    is_for_platform,
    resource_config,
)
from trainyard.instance.agent.program.hosts import network_interface
from trainyard.instance.agent.program.launch import address_of, launch_variables
from trainyard.instance.sandbox.contract import COMMANDS, ML
from trainyard.link.contract import InstanceSpec
from trainyard.link.spec_queries import is_spread

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_DEFAULT_LOG_LEVEL = 20

# Hyperparameters that the toolkit reads itself; other sagemaker_* ones are for framework launchers.
_READ_BY_TOOLKIT = frozenset(
    {
        "sagemaker_program",
        "sagemaker_submit_directory",
        "sagemaker_enable_cloudwatch_metrics",
        "sagemaker_region",
        "sagemaker_container_log_level",
        "sagemaker_job_name",
        "sagemaker_s3_output",
        "default_user_module_name",
        "_tuning_objective_metric",
    }
)
_DISTRIBUTIONS = frozenset(
    {
        "sagemaker_mpi_enabled",
        "sagemaker_parameter_server_enabled",
        "sagemaker_distributed_dataparallel_enabled",
        "sagemaker_pytorch_ddp_enabled",
        "sagemaker_pytorch_xla_multi_worker_enabled",
        "sagemaker_multi_worker_mirrored_strategy_enabled",
        "sagemaker_torch_distributed_enabled",
    }
)


@dataclass(frozen=True, slots=True)
class ProgramPaths:
    """The paths that a program uses: where it sees the ml folder, its temporary folder, and its Python.

    `programs` are folders of programs that come after those of its Python.
    """

    ml: str
    temporary: str
    interpreter: Path
    programs: Sequence[str] = ()

    @property
    def search_path(self) -> str:
        commands = [COMMANDS] if self.ml == ML else []
        own = f"{self.temporary}/.local/bin"
        return ":".join((*commands, own, str(self.interpreter.parent), *self.programs, *SYSTEM_PATH))


def program_arguments(spec: InstanceSpec) -> list[str]:
    """The hyperparameters as `--name value`, in the order of their names. A name of one letter gets one dash."""
    own = _own_hyperparameters(spec)
    pairs = ((f"--{name}" if len(name) > 1 else f"-{name}", _argument(own[name])) for name in sorted(own) if name)
    return [text for pair in pairs for text in pair]


def program_environment(spec: InstanceSpec, paths: ProgramPaths) -> dict[str, str]:
    """All variables of the program. The job's own environment takes precedence, except over the SM_* variables.

    A processing job has no SM_* variables but its own.
    """
    if spec.processing is not None:
        return {
            **_base_variables(spec, paths),
            **_processing_variables(spec, paths),
            **spec.environment,
            **_path_variables(spec, paths),
        }
    return {
        **_base_variables(spec, paths),
        **_platform_variables(spec, paths),
        **spec.environment,
        **launch_variables(spec, seen_as=paths.ml),
        **_path_variables(spec, paths),
        **toolkit_variables(spec, paths.ml),
    }


def container_environment(spec: InstanceSpec) -> dict[str, str]:
    """The variables of a program in its own image, which sets all others: for its paths, Python and toolkit."""
    paths = ProgramPaths(ML, "/tmp", Path())
    platform = _platform_variables if spec.processing is None else _processing_variables
    return {**platform(spec, paths), **spec.environment}


def toolkit_variables(spec: InstanceSpec, ml: str) -> dict[str, str]:
    """The SM_* variables."""
    training = training_environment(spec, ml)
    named = {name: training[name] for name in _SAME_NAME} | {
        "user_args": program_arguments(spec),
        "hps": training["hyperparameters"],
        "channels": sorted(training["channel_input_dirs"]),
        "framework_params": training["additional_framework_parameters"],
        "training_env": training,
    }
    named |= {f"channel_{name}": path for name, path in training["channel_input_dirs"].items()}
    named |= {f"hp_{name}": value for name, value in training["hyperparameters"].items()}
    # The name of a hyperparameter may be invalid for a variable; SM_HPS and the arguments still have it.
    return {f"SM_{name.upper()}": _variable(value) for name, value in named.items() if "=" not in name}


def training_environment(spec: InstanceSpec, ml: str) -> dict[str, Any]:
    """The content of SM_TRAINING_ENV: everything about the instance in one document."""
    return {**_program(spec, ml), **_folders(spec, ml), **_cluster(spec), **_machine(spec)}


def cpu_count(spec: InstanceSpec) -> int:
    """The number of processors that the program may use."""
    if spec.limits.cpus is not None:
        return max(1, int(spec.limits.cpus))
    return len(os.sched_getaffinity(0))


def find_executable(name: str, environment: Path) -> str | None:
    """Return the path of a program in the `environment` folder or on the system's path; None if neither has it.

    Only for programs that see the same system folders as the agent.
    """
    paths = [f"{folder}/{name}" for folder in (environment, *SYSTEM_PATH)]
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _program(spec: InstanceSpec, ml: str) -> dict[str, Any]:
    hyperparameters = decode_hyperparameters(spec)
    entry_point = spec.program.entry_point or None
    return {
        "additional_framework_parameters": _framework_parameters(hyperparameters),
        "framework_module": None,
        "hyperparameters": _own_hyperparameters(spec),
        "job_name": spec.job_name,
        "log_level": hyperparameters.get("sagemaker_container_log_level", _DEFAULT_LOG_LEVEL),
        "module_dir": spec.program.submit_directory or f"{ml}/code",
        "module_name": str(entry_point).removesuffix(".py"),
        "user_entry_point": entry_point,
    }


def _folders(spec: InstanceSpec, ml: str) -> dict[str, Any]:
    return {
        "channel_input_dirs": {channel.name: f"{ml}/input/data/{channel.name}" for channel in spec.channels},
        "input_config_dir": f"{ml}/input/config",
        "input_data_config": input_data_config(spec),
        "input_dir": f"{ml}/input",
        "model_dir": f"{ml}/model",
        "output_data_dir": f"{ml}/output/data",
        "output_dir": f"{ml}/output",
        "output_intermediate_dir": f"{ml}/output/intermediate",
    }


def _cluster(spec: InstanceSpec) -> dict[str, Any]:
    resources = resource_config(spec)
    hosts, groups = resources["hosts"], resources["instance_groups"]
    framework = _framework_parameters(decode_hyperparameters(spec))
    group_hosts = {group["instance_group_name"]: group["hosts"] for group in groups}
    is_distributed = any(framework.get(name) for name in _DISTRIBUTIONS)
    selected = framework.get("sagemaker_distribution_instance_groups", list(group_hosts))
    distributed = [name for name in group_hosts if is_distributed and name in selected]
    return {
        "current_host": spec.instance,
        "current_instance_group": spec.instance_group,
        "current_instance_group_hosts": group_hosts[spec.instance_group],
        "current_instance_type": spec.instance_type,
        "distribution_hosts": sorted(host for name in distributed for host in group_hosts[name]),
        "distribution_instance_groups": distributed,
        "hosts": hosts,
        "instance_groups": [group["instance_group_name"] for group in groups],
        "instance_groups_dict": {group["instance_group_name"]: group for group in groups},
        "is_hetero": len(groups) > 1,
        "is_master": spec.instance == hosts[0],
        "master_hostname": hosts[0],
        "network_interface_name": resources["network_interface_name"],
        "resource_config": resources,
        "topology": [],
    }


def _machine(spec: InstanceSpec) -> dict[str, Any]:
    return {
        "is_modelparallel_enabled": None,
        "is_smddpmprun_installed": False,
        "is_smddprun_installed": False,
        "num_cpus": cpu_count(spec),
        "num_gpus": len(spec.limits.gpus),
        "num_neurons": 0,
    }


# Variables with the same name as a member of SM_TRAINING_ENV.
_SAME_NAME = (
    "current_host",
    "current_instance_group",
    "current_instance_group_hosts",
    "current_instance_type",
    "distribution_instance_groups",
    "framework_module",
    "hosts",
    "input_config_dir",
    "input_data_config",
    "input_dir",
    "instance_groups",
    "instance_groups_dict",
    "is_hetero",
    "log_level",
    "model_dir",
    "module_dir",
    "module_name",
    "network_interface_name",
    "num_cpus",
    "num_gpus",
    "num_neurons",
    "output_data_dir",
    "output_dir",
    "output_intermediate_dir",
    "resource_config",
    "user_entry_point",
)


def _base_variables(spec: InstanceSpec, paths: ProgramPaths) -> dict[str, str]:
    return {
        "PATH": paths.search_path,
        "HOME": paths.temporary,
        "TMPDIR": paths.temporary,
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "UTF-8",
        # Threads of libgomp, which torch uses, spin for milliseconds while they wait for each other. Two jobs with as
        # many threads as there are cores then take 10 to 60 times as long as with this. It costs a single job nothing.
        "GOMP_SPINCOUNT": "1000",
        "HOSTNAME": spec.instance,
    }


def _platform_variables(spec: InstanceSpec, paths: ProgramPaths) -> dict[str, str]:
    hyperparameters = decode_hyperparameters(spec)
    return {
        "TRAINING_JOB_NAME": spec.job_name,
        "TRAINING_JOB_ARN": spec.job_arn,
        "AWS_REGION": spec.region,
        "AWS_DEFAULT_REGION": spec.region,
        "SAGEMAKER_METRICS_DIRECTORY": f"{paths.ml}/output/metrics/sagemaker",
        "SAGEMAKER_JOB_NAME": str(hyperparameters.get("sagemaker_job_name", "")),
        "SAGEMAKER_REGION": str(hyperparameters.get("sagemaker_region", spec.region)),
        "CURRENT_HOST": spec.instance,
        "MASTER_ADDR": address_of(spec, min(spec.hosts), seen_as=paths.ml),
        **({"MASTER_PORT": str(spec.master_port)} if spec.master_port else {}),
        "NCCL_SOCKET_IFNAME": network_interface(spec),
        # Without a sandbox, the name of a machine may resolve to an address that only the machine itself can reach.
        **({"GLOO_SOCKET_IFNAME": network_interface(spec)} if is_spread(spec) and paths.ml != ML else {}),
    }


def _processing_variables(spec: InstanceSpec, paths: ProgramPaths) -> dict[str, str]:
    return {
        "AWS_REGION": spec.region,
        "AWS_DEFAULT_REGION": spec.region,
        "SAGEMAKER_METRICS_DIRECTORY": f"{paths.ml}/output/metrics/sagemaker",
    }


def _path_variables(spec: InstanceSpec, paths: ProgramPaths) -> dict[str, str]:
    """Variables that the job's environment may extend but not replace."""
    code = f"{paths.ml}/code"
    job_path = spec.environment.get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{code}:{job_path}" if job_path else code,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, spec.limits.gpus)),
        # SageMaker's tools look here when there is no /opt/ml.
        **({"SAGEMAKER_BASE_DIR": paths.ml} if paths.ml != ML else {}),
    }


def _own_hyperparameters(spec: InstanceSpec) -> dict[str, Any]:
    return {name: value for name, value in decode_hyperparameters(spec).items() if not is_for_platform(name)}


def _framework_parameters(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in hyperparameters.items() if is_for_platform(name) and name not in _READ_BY_TOOLKIT
    }


def _argument(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ",".join(f"{name}={value[name]}" for name in sorted(value))
    return str(value)


def _variable(value: str | Sequence[Any] | Mapping[str, Any] | float | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
