"""Several groups of instances in one training job, each of a type of its own."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Instances of one type; channels may be for some groups only, by their names."""

    instance_group_name: str
    instance_type: str
    instance_count: int

    @property
    def shape(self) -> dict[str, Any]:
        """As the API words it."""
        return {
            "InstanceGroupName": self.instance_group_name,
            "InstanceType": self.instance_type,
            "InstanceCount": self.instance_count,
        }
