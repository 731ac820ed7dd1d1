"""The contract of `Records`, as one suite that every back end must pass."""

from trainyard.testing.records.backups import BackupContract
from trainyard.testing.records.counters import CounterContract
from trainyard.testing.records.events import EventContract
from trainyard.testing.records.leases import LeaseContract
from trainyard.testing.records.lists import ListContract
from trainyard.testing.records.resources import ResourceContract
from trainyard.testing.records.tags import TagContract
from trainyard.testing.records.users import UserContract


class RecordsContract(
    ResourceContract,
    ListContract,
    LeaseContract,
    EventContract,
    UserContract,
    TagContract,
    CounterContract,
    BackupContract,
):
    """Subclass it in a test module where three fixtures give

    - `records`: empty ones, closed after the test;
    - `reopen`: a function that opens what `records` keeps once more, as another process would;
    - `other_records`: empty ones that share nothing with `records`.
    """
