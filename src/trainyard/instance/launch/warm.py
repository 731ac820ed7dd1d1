"""A launcher in a process forked from a warm worker: its ranks are forks as well, with all that is imported."""

from trainyard.instance.launch.launcher import IsRank, Launcher, end
from trainyard.instance.launch.orders import decode
from trainyard.instance.sandbox.orders import Orders


def become_rank(program: Orders, failed: int) -> None:
    """Return in each rank, with the orders of the program as the rank has them; this process becomes the launcher.

    `failed` is where a rank tells why it cannot be the program, as the program itself would.
    """
    launch = decode(program.launcher[-1])
    try:
        code = Launcher(launch, program.environment, kept=failed).run()
    except IsRank as rank:
        program.environment = rank.environment
        program.threads = launch.threads
    else:
        end(code)
