"""Which server keeps which parameters."""

from collections.abc import Mapping


def shares(sizes: Mapping[str, int], servers: int) -> list[list[str]]:
    """The names that each server keeps, so that all keep about as many bytes. Equal for all who know the same sizes."""
    kept: list[list[str]] = [[] for _ in range(servers)]
    loads = [0] * servers
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = min(range(servers), key=lambda number: (loads[number], number))
        kept[least].append(name)
        loads[least] += sizes[name]
    return kept
