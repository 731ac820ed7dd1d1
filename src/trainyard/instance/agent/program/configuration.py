"""The configuration files of the container contract, as SageMaker puts them into /opt/ml/input/config."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainyard.instance.agent.program.hosts import network_interface
from trainyard.instance.agent.program.platform_files import platform_files
from trainyard.link.contract import ChannelSpec, DebuggerSpec, GroupSpec, InstanceSpec, ProfilerSpec
from trainyard.link.event_protocol import HOOK_CONFIG, PROFILER_CONFIG, RULES_CONFIG

# Hyperparameters for the platform, not for the program.
_PLATFORM = frozenset({"_tuning_objective_metric", "default_user_module_name"})
_PLATFORM_PREFIX = "sagemaker_"


def config_files(spec: InstanceSpec) -> Mapping[str, Any]:
    """All configuration files by name."""
    return {
        "hyperparameters.json": spec.hyperparameters,
        "inputdataconfig.json": input_data_config(spec),
        "resourceconfig.json": resource_config(spec),
        **({"checkpointconfig.json": {"LocalPath": spec.checkpoint.path}} if spec.checkpoint else {}),
        **({"tensorboardoutputconfig.json": {"LocalPath": spec.tensorboard.path}} if spec.tensorboard else {}),
        **(_debugger_files(spec.debugger) if spec.debugger else {}),
        **(_profiler_file(spec.profiler) if spec.profiler else {}),
        **platform_files(spec),
    }


def input_data_config(spec: InstanceSpec) -> Mapping[str, Mapping[str, str]]:
    """The content of inputdataconfig.json: the settings of each channel."""
    return {channel.name: _channel(channel) for channel in spec.channels}


def resource_config(spec: InstanceSpec) -> Mapping[str, Any]:
    """The content of resourceconfig.json: the instances, with all hosts in lexicographic order as programs expect."""
    hosts = sorted(spec.hosts)
    return {
        "current_host": spec.instance,
        "current_instance_type": spec.instance_type,
        "current_group_name": spec.instance_group,
        "hosts": hosts,
        "instance_groups": [
            {"instance_group_name": each.name, "instance_type": each.instance_type, "hosts": sorted(each.hosts)}
            for each in spec.groups or (GroupSpec(spec.instance_group, spec.instance_type, hosts),)
        ],
        "network_interface_name": network_interface(spec),
    }


def profiler_config(parameters: Mapping[str, str], *, path: str, is_enabled: bool) -> Mapping[str, Any]:
    """The content of profilerconfig.json. The folder of profiles stays where it is synced, whatever they say."""
    return {"DisableProfiler": not is_enabled, "ProfilingParameters": {**parameters, "LocalPath": path}}


def decode_hyperparameters(spec: InstanceSpec) -> dict[str, Any]:
    """Decode each value as JSON if it is valid JSON, else keep it as text."""
    return {name: _decode(value) for name, value in spec.hyperparameters.items()}


def is_for_platform(name: str) -> bool:
    """Whether a hyperparameter is meant for the platform and is not an argument of the program."""
    return name in _PLATFORM or name.startswith(_PLATFORM_PREFIX)


def _debugger_files(debugger: DebuggerSpec) -> Mapping[str, Any]:
    return {
        Path(HOOK_CONFIG).name: {**debugger.hook, "LocalPath": debugger.tensors.path},
        Path(RULES_CONFIG).name: [asdict(rule) for rule in debugger.rules],
    }


def _profiler_file(profiler: ProfilerSpec) -> Mapping[str, Any]:
    config = profiler_config(profiler.parameters, path=profiler.output.path, is_enabled=profiler.is_enabled)
    return {Path(PROFILER_CONFIG).name: config}


def _channel(channel: ChannelSpec) -> dict[str, str]:
    settings = {
        "TrainingInputMode": channel.mode,
        "S3DistributionType": channel.distribution,
        "RecordWrapperType": channel.record_wrapper,
    }
    return {"ContentType": channel.content_type, **settings} if channel.content_type is not None else settings


def _decode(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
