"""The Unix user id that the jobs of an account run as, if the yard itself runs as root."""

from datetime import datetime

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import Draft, Records, ResourceKey

KIND = "uid"
# Above the ids that systemd and container engines use, below 2^31.
FIRST, COUNT = 1_900_000_000, 100_000_000

# Ids are stored under no account, so that two accounts cannot get the same one.
_YARD_ACCOUNT = "000000000000"


def uid_of(records: Records, account: str, *, now: datetime) -> int:
    """Return the user id of an account: always the same, never that of another. The first call chooses it."""
    number = int(account) % COUNT
    while True:
        key = ResourceKey(_YARD_ACCOUNT, KIND, str(FIRST + number))
        try:
            owner = records.load(key).body["account"]
        except NotFound:
            try:
                owner = records.create(Draft(key, "", {"account": account}), now=now).body["account"]
            except AlreadyExists:
                # Somebody took it just now, perhaps for another account.
                continue
        if owner == account:
            return FIRST + number
        number = (number + 1) % COUNT
