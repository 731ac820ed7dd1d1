"""The contract of `Records` as one test suite that every back end must pass."""

from trainyard.testing.records.associations import AssociationContract
from trainyard.testing.records.backups import BackupContract
from trainyard.testing.records.counters import CounterContract
from trainyard.testing.records.events import EventContract
from trainyard.testing.records.leases import LeaseContract
from trainyard.testing.records.lists import ResourceListContract
from trainyard.testing.records.queues import QueueContract
from trainyard.testing.records.resources import ResourceContract
from trainyard.testing.records.tags import TagContract
from trainyard.testing.records.users import UserContract
from trainyard.testing.records.values import ValueContract


class RecordsContract(
    ResourceContract,
    ResourceListContract,
    LeaseContract,
    QueueContract,
    EventContract,
    UserContract,
    TagContract,
    AssociationContract,
    CounterContract,
    ValueContract,
    BackupContract,
):
    """The whole suite. Subclass it in a test module with three fixtures:

    - `records`: empty records, closed after the test;
    - `reopen`: a function that opens the same records again, as another process would;
    - `other_records`: empty records that share nothing with `records`.
    """
