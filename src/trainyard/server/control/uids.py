"""The unix user that the jobs of an account run as, where the yard itself runs as root."""

from datetime import datetime

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import Draft, Records, ResourceKey

KIND = "uid"
FIRST, COUNT = 1_900_000_000, 100_000_000  # above what systemd and container engines hand out, below 2^31

_OF_THE_YARD = "000000000000"  # uids belong to no account, so that two accounts cannot have the same one


def uid_of(records: Records, account: str, *, now: datetime) -> int:
    """Always the same for an account, never that of another; chosen and remembered when it is first asked for."""
    number = int(account) % COUNT
    while True:
        key = ResourceKey(_OF_THE_YARD, KIND, str(FIRST + number))
        try:
            owner = records.load(key).body["account"]
        except NotFound:
            try:
                owner = records.create(Draft(key, "", {"account": account}), now=now).body["account"]
            except AlreadyExists:  # taken just now, perhaps by another account
                continue
        if owner == account:
            return FIRST + number
        number = (number + 1) % COUNT
