"""The plan of a processing job: on which instances it runs, with which program, what it reads and what it stores."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainyard.foundation.jobs.channels import ChannelPlan


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """A folder of the program whose files every instance stores under an S3 prefix."""

    name: str
    uri: str
    path: str  # as the program sees it
    is_continuous: bool = False  # stored while the program runs, not only at its end


@dataclass(frozen=True, slots=True)
class ProcessingPlan:
    """What to run, on what, with what. It never changes after the create.

    `inputs` are channels with a path. Inputs and outputs that the program handles itself are not in the plan.
    """

    image: str
    instance_type: str
    instance_count: int
    role: str  # name of the role of the job's credentials
    entrypoint: tuple[str, ...] = ()  # instead of that of the image
    arguments: tuple[str, ...] = ()
    inputs: tuple[ChannelPlan, ...] = ()
    outputs: tuple[OutputPlan, ...] = ()
    output_key: str = ""  # ARN of the key that encrypts what the job stores; empty means as the buckets do
    environment: Mapping[str, str] = field(default_factory=dict)
    max_runtime_s: int = 86400
    is_isolated: bool = False  # can reach only its own instances
    retries: int = 0  # after failures that are not its own; AWS's create call cannot ask for any
    is_spot: bool = False  # always false: AWS has no spot processing jobs
    is_spread: bool = False  # each instance on its own node
    engine: str = ""  # empty means the default engine

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names of the instances."""
        return tuple(f"algo-{number}" for number in range(1, self.instance_count + 1))

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The instance type of each host."""
        return (self.instance_type,) * self.instance_count
