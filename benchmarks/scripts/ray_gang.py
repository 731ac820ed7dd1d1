"""A Ray job that runs on several nodes at once: `ray_gang.py COUNT CPUS`, in Ray's environment.

Prints for each node when its first line ran, in nanoseconds since the epoch, once all have.
"""

import sys
import time
from typing import Any

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
class Instance:
    """One for each node."""

    def first_line(self) -> int:
        return time.time_ns()


def main(count: int, cpus: int) -> None:
    ray.init(log_to_driver=False)
    group: Any = placement_group([{"CPU": cpus}] * count, strategy="STRICT_SPREAD")
    remote: Any = Instance
    instances = [
        remote.options(
            num_cpus=cpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        ).remote()
        for index in range(count)
    ]
    print(*ray.get([instance.first_line.remote() for instance in instances]), sep="\n", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
