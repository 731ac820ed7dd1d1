"""Which instances of a job lie on the same machine, as the addresses of its hosts tell."""

from collections.abc import Sequence

from trainyard.link.contract import InstanceSpec


def is_spread(spec: InstanceSpec) -> bool:
    """Whether the instances of the job lie on several machines."""
    return len(set(spec.addresses)) > 1


def elsewhere(spec: InstanceSpec) -> Sequence[str]:
    """The instances that lie on other machines than this one."""
    if not spec.addresses:
        return ()
    own = spec.addresses[spec.hosts.index(spec.instance)]
    return [host for host, address in zip(spec.hosts, spec.addresses, strict=True) if address != own]


def is_first_here(spec: InstanceSpec) -> bool:
    """Whether no instance before this one lies on the same machine."""
    others = elsewhere(spec)
    return next(host for host in spec.hosts if host not in others) == spec.instance
