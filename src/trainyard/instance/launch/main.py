"""A launcher in a Python of its own: `python -I -S -c BOOT PACKAGE ORDERS PROGRAM…`, whose ranks are executed."""

import os
import sys

from trainyard.instance.launch.launcher import IsRank, Launcher, end, execute
from trainyard.instance.launch.orders import decode

# As the keeper's, it enters the package past its __init__.
BOOT = (
    "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:2]; "
    "from trainyard.instance.launch.main import main; main()"
)


def main() -> None:
    _, _, orders, *program = sys.argv
    try:
        code = Launcher(decode(orders), dict(os.environ)).run()
    except IsRank as rank:
        environment = rank.environment
    else:
        end(code)
    execute(program, environment)
