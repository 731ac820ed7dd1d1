"""The ports of the job, held by the agent of its first instance on a machine, so that no other job there gets them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from trainyard.link.contract import InstanceSpec
from trainyard.link.neighbours import is_first_here
from trainyard.link.port_blocks import AGENT, BLOCK, hold_block, ports_of


@contextmanager
def held_ports(spec: InstanceSpec) -> Iterator[None]:
    """Hold them meanwhile. Where a user of the machine has taken the names, the engine's own hold has to do."""
    with ExitStack() as holds:
        if spec.master_port and is_first_here(spec):
            for first in range(spec.master_port, spec.master_port + ports_of(len(spec.hosts)), BLOCK):
                held = hold_block(first, AGENT)
                if held is not None:
                    holds.enter_context(held)
        yield
