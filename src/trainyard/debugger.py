"""The debugger of a training job: rules, collections of tensors to capture, and TensorBoard output.

What concerns the profiler is that of `trainyard.profiler`; `sagemaker.debugger` has both.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from trainyard._sdk import rule_configs
from trainyard._sdk.profiling.configuration import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    Profiler,
    ProfilerConfig,
    PythonProfiler,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
    cProfileTimer,
)
from trainyard._sdk.profiling.profiler_rule import ProfilerRule, get_default_profiler_processing_job, rule_image
from trainyard._sdk.rule_configs import Action, ActionList, RuleConfig
from trainyard._sdk.rule_request import SOURCE, RuleBase
from trainyard.foundation.errors import InvalidRequest

__all__ = [
    "DEBUGGER_FLAG",
    "CollectionConfig",
    "DataloaderProfilingConfig",
    "DebuggerHookConfig",
    "DetailedProfilingConfig",
    "FrameworkProfile",
    "HorovodProfilingConfig",
    "Profiler",
    "ProfilerConfig",
    "ProfilerRule",
    "PythonProfiler",
    "PythonProfilingConfig",
    "Rule",
    "RuleBase",
    "SMDataParallelProfilingConfig",
    "TensorBoardOutputConfig",
    "cProfileTimer",
    "framework_name",
    "get_default_profiler_processing_job",
    "get_rule_container_image_uri",
    "rule_configs",
]

# The name of the images of built-in rules, and the environment variable by which AWS's images turn the hook off.
framework_name = "debugger"
DEBUGGER_FLAG = "USE_SMDEBUG"

Shape = dict[str, Any]

# Parameters by which a request names the class of a custom rule, and the actions of a rule.
_RULE, _ACTIONS = "rule_to_invoke", "action_json"


class CollectionConfig:
    """A collection of tensors: a built-in one by its name, or your own with an `include_regex`.

    Args:
        name: Name of the collection, such as `weights` or `losses`.
        parameters: Parameters such as `include_regex`, `save_interval` and `save_raw_tensor`.
    """

    def __init__(self, name: str, parameters: Mapping[str, str] | None = None) -> None:
        self.name, self.parameters = name, parameters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CollectionConfig) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"CollectionConfig({self.name!r}, {dict(self.parameters or {})!r})"

    @classmethod
    def from_job_desc(cls, description: Shape) -> Self:
        """Return the collection of a job description.

        Args:
            description: An entry of CollectionConfigurations.
        """
        return cls(description["CollectionName"], description.get("CollectionParameters"))

    @property
    def shape(self) -> Shape:
        """The collection in the form of the SageMaker API."""
        shape: Shape = {"CollectionName": self.name}
        return shape | ({} if self.parameters is None else {"CollectionParameters": dict(self.parameters)})

    @property
    def _key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        return self.name, tuple(sorted((self.parameters or {}).items()))


class DebuggerHookConfig:
    """Which tensors to capture, how often, and where to store them.

    Args:
        s3_output_path: S3 location for the tensors. Default: the output path of the job.
        container_local_output_path: Folder in the instance to which the hook writes.
        hook_parameters: Parameters for all collections, such as `save_interval`.
        collection_configs: The collections to capture, in addition to those of the rules.
    """

    def __init__(
        self,
        s3_output_path: str | None = None,
        container_local_output_path: str | None = None,
        hook_parameters: Mapping[str, str] | None = None,
        collection_configs: Sequence[CollectionConfig] | None = None,
    ) -> None:
        self.s3_output_path = s3_output_path
        self.container_local_output_path = container_local_output_path
        self.hook_parameters, self.collection_configs = hook_parameters, collection_configs

    @classmethod
    def from_job_desc(cls, description: Shape, *, output_path: str) -> Self:
        """Return the configuration of a job description, which includes the collections of its rules.

        Args:
            description: The DebugHookConfig of the job.
            output_path: The output path of the job. It is the default of `s3_output_path`.
        """
        return cls(
            None if description["S3OutputPath"] == output_path else description["S3OutputPath"],
            description.get("LocalPath"),
            description.get("HookParameters"),
            [CollectionConfig.from_job_desc(each) for each in description.get("CollectionConfigurations", ())],
        )

    def shape(self, output_path: str, rules: "Sequence[Rule]") -> Shape:
        """Return the DebugHookConfig of a request.

        Args:
            output_path: The output path of the job.
            rules: The rules of the job; their collections are included.
        """
        own = self.collection_configs or ()
        collections = dict.fromkeys([*(each for rule in rules for each in rule.collection_configs), *own])
        shape: Shape = {
            "S3OutputPath": self.s3_output_path or output_path,
            "CollectionConfigurations": [each.shape for each in collections],
        }
        if self.container_local_output_path is not None:
            shape["LocalPath"] = self.container_local_output_path
        if self.hook_parameters is not None:
            shape["HookParameters"] = dict(self.hook_parameters)
        return shape


class TensorBoardOutputConfig:
    """Where to store scalars and histograms for TensorBoard.

    Args:
        s3_output_path: S3 location that TensorBoard reads.
        container_local_output_path: Folder in the instance to which the hook writes.
    """

    def __init__(self, s3_output_path: str, container_local_output_path: str | None = None) -> None:
        self.s3_output_path, self.container_local_output_path = s3_output_path, container_local_output_path

    @classmethod
    def from_job_desc(cls, description: Shape) -> Self:
        """Return the configuration of a job description.

        Args:
            description: The TensorBoardOutputConfig of the job.
        """
        return cls(description["S3OutputPath"], description.get("LocalPath"))

    @property
    def shape(self) -> Shape:
        """The configuration in the form of the SageMaker API."""
        local = {"LocalPath": self.container_local_output_path} if self.container_local_output_path else {}
        return {"S3OutputPath": self.s3_output_path, **local}


class Rule(RuleBase):
    """A rule that is evaluated on the tensors of a training. `sagemaker` and `custom` create rules.

    Args:
        name: Name of the rule in the job.
        image_uri: Image of the rule. Default: that of the built-in rules.
        instance_type: Instance type for the rule. Accepted; the rule runs next to the job.
        container_local_output_path: Folder in the instance for the output of the rule.
        s3_output_path: S3 location for the output of the rule.
        volume_size_in_gb: Size of the volume of the rule.
        rule_parameters: Parameters of the rule.
        collections_to_save: The collections that the rule needs.
        actions: What to do when the rule finds an issue.
    """

    def __init__(
        self,
        name: str,
        image_uri: str | None,
        instance_type: str | None,
        container_local_output_path: str | None,
        s3_output_path: str | None,
        volume_size_in_gb: int | None,
        rule_parameters: Mapping[str, str],
        collections_to_save: Sequence[CollectionConfig],
        actions: Action | ActionList | None = None,
    ) -> None:
        super().__init__(
            name,
            image_uri,
            instance_type,
            container_local_output_path,
            s3_output_path,
            volume_size_in_gb,
            rule_parameters,
        )
        self.collection_configs, self.actions = list(collections_to_save), actions

    @classmethod
    def sagemaker(
        cls,
        base_config: RuleConfig,
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: Sequence[str] | None = None,
        rule_parameters: Mapping[str, str] | None = None,
        collections_to_save: Sequence[CollectionConfig] | None = None,
        actions: Action | ActionList | None = None,
    ) -> Self:
        """Return a built-in rule.

        Args:
            base_config: The rule, such as `rule_configs.vanishing_gradient()`.
            name: Name of the rule in the job. Default: the name of the built-in rule.
            container_local_output_path: Folder in the instance for the output of the rule.
            s3_output_path: S3 location for the output of the rule.
            other_trials_s3_input_paths: S3 locations of other runs to compare with.
            rule_parameters: Parameters that replace the defaults of the rule.
            collections_to_save: The collections to capture. Default: those that the rule needs.
            actions: What to do when the rule finds an issue.

        Raises:
            InvalidRequest: `rule_parameters` names another rule, or `actions` is not an action.
        """
        if rule_parameters and rule_parameters.get(_RULE):
            raise InvalidRequest(
                f"base_config names the built-in rule; leave {_RULE} out of rule_parameters, or use Rule.custom."
            )
        _require_actions(actions)
        base = base_config["DebugRuleConfiguration"]
        collections = base_config.get("CollectionConfigurations", ())
        return cls(
            name or base["RuleConfigurationName"],
            image_uri=None,
            instance_type=None,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            volume_size_in_gb=None,
            rule_parameters={
                **_other_trial_parameters(other_trials_s3_input_paths),
                **base.get("RuleParameters", {}),
                **(rule_parameters or {}),
            },
            collections_to_save=collections_to_save
            or [CollectionConfig(each["CollectionName"], each.get("CollectionParameters", {})) for each in collections],
            actions=actions,
        )

    @classmethod
    def custom(
        cls,
        name: str,
        image_uri: str,
        instance_type: str,
        volume_size_in_gb: int,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: Sequence[str] | None = None,
        rule_parameters: Mapping[str, str] | None = None,
        collections_to_save: Sequence[CollectionConfig] | None = None,
        actions: Action | ActionList | None = None,
    ) -> Self:
        """Return your own rule: a class in a Python file.

        Args:
            name: Name of the rule in the job.
            image_uri: Image of the rule.
            instance_type: Instance type for the rule. Accepted; the rule runs next to the job.
            volume_size_in_gb: Size of the volume of the rule.
            source: The Python file: a local path, which `fit` uploads, or an S3 location.
            rule_to_invoke: Name of the class in the file.
            container_local_output_path: Folder in the instance for the output of the rule.
            s3_output_path: S3 location for the output of the rule.
            other_trials_s3_input_paths: S3 locations of other runs to compare with.
            rule_parameters: Parameters of the rule.
            collections_to_save: The collections that the rule needs.
            actions: What to do when the rule finds an issue.

        Raises:
            InvalidRequest: Only one of `source` and `rule_to_invoke` is given, or `actions` is not an action.
        """
        if bool(source) != bool(rule_to_invoke):
            raise InvalidRequest("A custom rule needs both a source, its file, and rule_to_invoke, the class in it.")
        _require_actions(actions)
        own = {SOURCE: source, _RULE: rule_to_invoke} if source and rule_to_invoke else {}
        return cls(
            name,
            image_uri,
            instance_type,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            volume_size_in_gb=volume_size_in_gb,
            rule_parameters={**_other_trial_parameters(other_trials_s3_input_paths), **own, **(rule_parameters or {})},
            collections_to_save=collections_to_save or [],
            actions=actions,
        )

    @classmethod
    def from_job_desc(cls, description: Shape, *, training_job_name: str) -> Self:
        """Return the rule of a job description, without collections: those are in its DebugHookConfig.

        Args:
            description: An entry of DebugRuleConfigurations.
            training_job_name: Name of the described job.
        """
        parameters = dict(description.get("RuleParameters", {}))
        actions = parameters.pop(_ACTIONS, None)
        return cls(
            description["RuleConfigurationName"],
            description["RuleEvaluatorImage"],
            description.get("InstanceType"),
            description.get("LocalPath"),
            description.get("S3OutputPath"),
            description.get("VolumeSizeInGB"),
            parameters,
            collections_to_save=[],
            actions=rule_configs.parse_actions(actions, training_job_name) if actions else None,
        )

    def shape(self, job_name: str, *, image_uri: str, source_uri: str) -> Shape:
        """Return the rule as an entry of DebugRuleConfigurations.

        Args:
            job_name: Name of the job, which actions stop if they name no other.
            image_uri: Image of the built-in rules.
            source_uri: S3 location of the file of a custom rule.
        """
        parameters = {key: str(value) for key, value in self.rule_parameters.items() if key != _ACTIONS}
        if source_uri:
            parameters[SOURCE] = source_uri
        if self.actions is not None:
            self.actions.update_training_job_prefix_if_not_specified(job_name)
            parameters[_ACTIONS] = self.actions.serialize()
        return self._configuration(parameters, image_uri=image_uri)


def get_rule_container_image_uri(name: str | None, region: str) -> str:
    """Return the image of a built-in rule.

    Args:
        name: Name of the rule.
        region: The region.
    """
    from trainyard import image_uris

    return rule_image(name, image_uris.retrieve("debugger", region))


def _require_actions(actions: object) -> None:
    if actions is not None and not rule_configs.is_valid_action_object(actions):
        raise InvalidRequest("actions must be an Action, such as rule_configs.StopTraining(), or an ActionList.")


def _other_trial_parameters(uris: Sequence[str] | None) -> dict[str, str]:
    return {f"other_trial_{number}": uri for number, uri in enumerate(uris or ())}
