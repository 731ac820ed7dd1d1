"""Rules on how a training uses its machine, as a job is asked for them."""

import time
from collections.abc import Mapping
from typing import Any, Self

from trainyard._sdk.profiling.rule_configs import ProfilerReport, ProfilerRuleConfig
from trainyard._sdk.rule_request import SOURCE, RuleBase
from trainyard.foundation.errors import InvalidRequest

_RULE = "rule_to_invoke"
# The job of AWS that converts the files of SageMaker Profiler, a service that is not Debugger.
PROCESSING_JOB = "DetailedProfilerProcessingJobConfig"


class ProfilerRule(RuleBase):
    """A rule that is evaluated on the profile of a training. `sagemaker` and `custom` create rules.

    Args:
        name: Name of the rule in the job.
        image_uri: Image of the rule. Default: that of the built-in rules.
        instance_type: Instance type for the rule. Accepted; the yard evaluates it.
        container_local_output_path: Folder in the instance for the output of the rule.
        s3_output_path: S3 location for the output of the rule.
        volume_size_in_gb: Size of the volume of the rule.
        rule_parameters: Parameters of the rule.
    """

    @classmethod
    def sagemaker(
        cls,
        base_config: ProfilerRuleConfig,
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        instance_type: str | None = None,
        volume_size_in_gb: int | None = None,
    ) -> Self:
        """Return a built-in rule.

        Args:
            base_config: The rule and its parameters, such as `rule_configs.ProfilerReport()`.
            name: Name of the rule in the job. Default: the name of the built-in rule.
            container_local_output_path: Folder in the instance for the output of the rule.
            s3_output_path: S3 location for the output of the rule.
            instance_type: Accepted, without effect for a built-in rule.
            volume_size_in_gb: Accepted, without effect for a built-in rule.

        Raises:
            InvalidRequest: `base_config` is not the configuration of a profiler rule.
        """
        if not isinstance(base_config, ProfilerRuleConfig):
            raise InvalidRequest(
                "base_config must be a profiler rule, such as rule_configs.ProfilerReport(); for a rule on tensors, "
                "use Rule.sagemaker."
            )
        used = name or base_config.rule_name
        is_processing = used.startswith(PROCESSING_JOB)
        return cls(
            used,
            image_uri=None,
            instance_type=(instance_type or "ml.m5.4xlarge") if is_processing else None,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            volume_size_in_gb=(volume_size_in_gb or 128) if is_processing else None,
            rule_parameters=base_config.rule_parameters,
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
        rule_parameters: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a rule with an image of its own, or with a source: a class in a Python file.

        Args:
            name: Name of the rule in the job.
            image_uri: Image of the rule.
            instance_type: Instance type for the rule. Accepted; the yard evaluates it.
            volume_size_in_gb: Size of the volume of the rule.
            source: The Python file: a local path, which `fit` uploads, or an S3 location.
            rule_to_invoke: Name of the class in the file.
            container_local_output_path: Folder in the instance for the output of the rule.
            s3_output_path: S3 location for the output of the rule.
            rule_parameters: Parameters of the rule.

        Raises:
            InvalidRequest: Only one of `source` and `rule_to_invoke` is given.
        """
        if bool(source) != bool(rule_to_invoke):
            raise InvalidRequest("A custom rule needs both a source, its file, and rule_to_invoke, the class in it.")
        own = {SOURCE: source, _RULE: rule_to_invoke} if source and rule_to_invoke else {}
        return cls(
            name,
            image_uri,
            instance_type,
            container_local_output_path,
            s3_output_path,
            volume_size_in_gb,
            {**own, **(rule_parameters or {})},
        )

    @classmethod
    def from_job_desc(cls, description: dict[str, Any]) -> Self:
        """Return the rule of a job description.

        Args:
            description: An entry of ProfilerRuleConfigurations.
        """
        return cls(
            description["RuleConfigurationName"],
            description["RuleEvaluatorImage"],
            description.get("InstanceType"),
            description.get("LocalPath"),
            description.get("S3OutputPath"),
            description.get("VolumeSizeInGB"),
            description.get("RuleParameters", {}),
        )

    def shape(self, *, image_uri: str, source_uri: str) -> dict[str, Any]:
        """Return the rule as an entry of ProfilerRuleConfigurations.

        Args:
            image_uri: Image of the built-in rules.
            source_uri: S3 location of the file of a custom rule.
        """
        parameters = {key: str(value) for key, value in self.rule_parameters.items()}
        image = rule_image(self.name, image_uri)
        return self._configuration(parameters | ({SOURCE: source_uri} if source_uri else {}), image_uri=image)


def rule_image(name: str | None, built_in: str) -> str:
    """Return the image of a rule by its name: that of the built-in rules, or of AWS's job beside them."""
    if name is not None and name.startswith(PROCESSING_JOB):
        return built_in.replace("sagemaker-debugger-rules", "detailed-profiler-processing")
    return built_in


def default_rule() -> ProfilerRule:
    """Return the rule that a profiled job has if the user names none: a report, under a name of its own."""
    return ProfilerRule.sagemaker(ProfilerReport(), name=f"ProfilerReport-{int(time.time())}")


def get_default_profiler_processing_job(
    instance_type: str | None = None, volume_size_in_gb: int | None = None
) -> ProfilerRule:
    """Return the rule with which AWS converts the files of SageMaker Profiler.

    Args:
        instance_type: Instance type for the conversion.
        volume_size_in_gb: Size of its volume.
    """
    return ProfilerRule.sagemaker(
        ProfilerRuleConfig(PROCESSING_JOB, rule_to_invoke="DetailedProfilerProcessing"),
        name=f"{PROCESSING_JOB}-{int(time.time())}",
        instance_type=instance_type,
        volume_size_in_gb=volume_size_in_gb,
    )
