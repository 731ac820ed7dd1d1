"""What debugger rules and profiler rules have in common: their members in a request."""

from abc import ABC
from collections.abc import Mapping
from typing import Any

# The parameter that names the file of a custom rule.
SOURCE = "source_s3_uri"


class RuleBase(ABC):  # noqa: B024 - the SDK's name for what both kinds of rules are
    """The base of `Rule` and `ProfilerRule`.

    Args:
        name: Name of the rule in the job.
        image_uri: Image of the rule. Default: that of the built-in rules.
        instance_type: Instance type for the rule. Accepted; the yard evaluates it.
        container_local_output_path: Folder in the instance for the output of the rule.
        s3_output_path: S3 location for the output of the rule.
        volume_size_in_gb: Size of the volume of the rule.
        rule_parameters: Parameters of the rule.
    """

    def __init__(
        self,
        name: str,
        image_uri: str | None,
        instance_type: str | None,
        container_local_output_path: str | None,
        s3_output_path: str | None,
        volume_size_in_gb: int | None,
        rule_parameters: Mapping[str, Any],
    ) -> None:
        self.name, self.image_uri, self.instance_type = name, image_uri, instance_type
        self.container_local_output_path, self.s3_output_path = container_local_output_path, s3_output_path
        self.volume_size_in_gb, self.rule_parameters = volume_size_in_gb, dict(rule_parameters)

    @property
    def source(self) -> str:
        """The file of a custom rule; empty for a built-in rule."""
        return str(self.rule_parameters.get(SOURCE, ""))

    def _configuration(self, parameters: Mapping[str, str], *, image_uri: str) -> dict[str, Any]:
        """Return the rule with these parameters as an entry of a request. `image_uri` is that of built-in rules."""
        given = {
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_size_in_gb,
            "LocalPath": self.container_local_output_path,
            "S3OutputPath": self.s3_output_path,
            "RuleParameters": dict(parameters),
        }
        shape: dict[str, Any] = {
            "RuleConfigurationName": self.name,
            "RuleEvaluatorImage": self.image_uri or image_uri,
        }
        return shape | {member: value for member, value in given.items() if value}
