"""Instance groups: several types of instances in one training job."""

from dataclasses import dataclass
from typing import Any

__all__ = ["InstanceGroup"]


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """A group of instances of one type. A channel can be limited to some groups by their names.

    Args:
        instance_group_name: Name of the group.
        instance_type: Type of its instances, such as `ml.m5.large`.
        instance_count: Number of its instances.
    """

    instance_group_name: str
    instance_type: str
    instance_count: int

    @property
    def shape(self) -> dict[str, Any]:
        """The group in the form of the SageMaker API."""
        return {
            "InstanceGroupName": self.instance_group_name,
            "InstanceType": self.instance_type,
            "InstanceCount": self.instance_count,
        }
