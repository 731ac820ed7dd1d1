"""What of a training is captured and judged: rules, collections of tensors, and where TensorBoard finds them."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Self

from trainyard import rule_configs
from trainyard.foundation.errors import InvalidRequest
from trainyard.rule_configs import Action, ActionList, RuleConfig

__all__ = [
    "CollectionConfig",
    "DebuggerHookConfig",
    "ProfilerRule",
    "Rule",
    "TensorBoardOutputConfig",
    "get_rule_container_image_uri",
    "rule_configs",
]

Shape = dict[str, Any]

_SOURCE, _RULE, _ACTIONS = "source_s3_uri", "rule_to_invoke", "action_json"


class CollectionConfig:
    """A set of tensors by its name: a built-in one or, with an `include_regex`, one of one's own."""

    def __init__(self, name: str, parameters: Mapping[str, str] | None = None) -> None:
        self.name, self.parameters = name, parameters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CollectionConfig) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"CollectionConfig({self.name!r}, {dict(self.parameters or {})!r})"

    @classmethod
    def from_job_desc(cls, told: Shape) -> Self:
        return cls(told["CollectionName"], told.get("CollectionParameters"))

    @property
    def shape(self) -> Shape:
        shape: Shape = {"CollectionName": self.name}
        return shape | ({} if self.parameters is None else {"CollectionParameters": dict(self.parameters)})

    @property
    def _key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        return self.name, tuple(sorted((self.parameters or {}).items()))


class DebuggerHookConfig:
    """Which tensors are saved, how often, and where."""

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
    def from_job_desc(cls, told: Shape, *, output_path: str) -> Self:
        """What a description says, with the collections of its rules; its place is left open where it is the usual."""
        return cls(
            None if told["S3OutputPath"] == output_path else told["S3OutputPath"],
            told.get("LocalPath"),
            told.get("HookParameters"),
            [CollectionConfig.from_job_desc(each) for each in told.get("CollectionConfigurations", ())],
        )

    def shape(self, output_path: str, rules: "Sequence[Rule]") -> Shape:
        """As a request asks for it: with the collections of rules, and with a place where none was given."""
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
    """Where TensorBoard finds scalars and histograms."""

    def __init__(self, s3_output_path: str, container_local_output_path: str | None = None) -> None:
        self.s3_output_path, self.container_local_output_path = s3_output_path, container_local_output_path

    @classmethod
    def from_job_desc(cls, told: Shape) -> Self:
        return cls(told["S3OutputPath"], told.get("LocalPath"))

    @property
    def shape(self) -> Shape:
        local = {"LocalPath": self.container_local_output_path} if self.container_local_output_path else {}
        return {"S3OutputPath": self.s3_output_path, **local}


class Rule:
    """A rule that judges the tensors of a training; made by `sagemaker` from a built-in one, or by `custom`."""

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
        self.name, self.image_uri, self.instance_type = name, image_uri, instance_type
        self.container_local_output_path, self.s3_output_path = container_local_output_path, s3_output_path
        self.volume_size_in_gb, self.rule_parameters = volume_size_in_gb, dict(rule_parameters)
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
        """A built-in rule, by what `rule_configs` has for it."""
        if rule_parameters and rule_parameters.get(_RULE):
            raise InvalidRequest(
                f"rule_parameters of a built-in rule has {_RULE}, which base_config says; leave it out, or use custom."
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
                **_numbered(other_trials_s3_input_paths),
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
        """A rule of one's own: a class in a Python file, which is brought to S3 where it is not there."""
        if bool(source) != bool(rule_to_invoke):
            raise InvalidRequest("A custom rule needs both a source, its file, and rule_to_invoke, the class in it.")
        _require_actions(actions)
        own = {_SOURCE: source, _RULE: rule_to_invoke} if source and rule_to_invoke else {}
        return cls(
            name,
            image_uri,
            instance_type,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            volume_size_in_gb=volume_size_in_gb,
            rule_parameters={**_numbered(other_trials_s3_input_paths), **own, **(rule_parameters or {})},
            collections_to_save=collections_to_save or [],
            actions=actions,
        )

    @classmethod
    def from_job_desc(cls, told: Shape, *, training_job_name: str) -> Self:
        """What a description says. The collections of rules are in that of the hook."""
        parameters = dict(told.get("RuleParameters", {}))
        actions = parameters.pop(_ACTIONS, None)
        return cls(
            told["RuleConfigurationName"],
            told["RuleEvaluatorImage"],
            told.get("InstanceType"),
            told.get("LocalPath"),
            told.get("S3OutputPath"),
            told.get("VolumeSizeInGB"),
            parameters,
            collections_to_save=[],
            actions=rule_configs.actions_of(actions, training_job_name) if actions else None,
        )

    @property
    def source(self) -> str:
        """The file of a rule of one's own; empty for a built-in one."""
        return self.rule_parameters.get(_SOURCE, "")

    def shape(self, job_name: str, *, image_uri: str, source_uri: str) -> Shape:
        """As a request asks for it."""
        parameters = {key: str(value) for key, value in self.rule_parameters.items() if key != _ACTIONS}
        if source_uri:
            parameters[_SOURCE] = source_uri
        if self.actions is not None:
            self.actions.update_training_job_prefix_if_not_specified(job_name)
            parameters[_ACTIONS] = self.actions.serialize()
        given = {
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_size_in_gb,
            "LocalPath": self.container_local_output_path,
            "S3OutputPath": self.s3_output_path,
            "RuleParameters": parameters,
        }
        shape: Shape = {"RuleConfigurationName": self.name, "RuleEvaluatorImage": self.image_uri or image_uri}
        return shape | {member: value for member, value in given.items() if value}


class ProfilerRule:
    """A rule that judges how a training uses its machine. The yard has none yet."""

    @classmethod
    def sagemaker(cls, *_arguments: object, **_options: object) -> NoReturn:
        raise InvalidRequest("Trainyard does not serve ProfilerRule yet; leave profiler rules out of `rules`.")

    custom = sagemaker


def get_rule_container_image_uri(name: str | None, region: str) -> str:  # noqa: ARG001 - the SDK's signature
    """The image that stands for the built-in rules."""
    from trainyard import image_uris

    return image_uris.retrieve("debugger", region)


def _require_actions(actions: object) -> None:
    if actions is not None and not rule_configs.is_valid_action_object(actions):
        raise InvalidRequest("actions must be an Action, such as rule_configs.StopTraining(), or an ActionList.")


def _numbered(uris: Sequence[str] | None) -> dict[str, str]:
    return {f"other_trial_{number}": uri for number, uri in enumerate(uris or ())}
