"""How many instances a user's jobs may have at once: by instance type, in all, and apart for on-demand and spot.

There are no limits until one is set. A limit for every user is one for each of them, and gives way to that user's own.
One for any type counts all types together and binds beside those of single types. What is in use is a counter that the
records move in the transaction that creates or ends a job: no number of creates at once gets past a limit, and no crash
leaves it wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from trainyard.foundation.errors import AlreadyExists, InvalidRequest, LimitExceeded, NotFound
from trainyard.server.records.contract import (
    Change,
    Counter,
    CounterFull,
    Draft,
    Query,
    Records,
    Resource,
    ResourceKey,
    SortBy,
    User,
)

KIND = "quota"
ANY = "*"  # every user, or any instance type
MAX_LIMIT = 1_000_000

_OF_THE_YARD = "000000000000"  # quotas belong to no account, least of all to the one that they limit
_COUNTER = "training-instances"
_PAGE = 1000


class CapacityKind(StrEnum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on the instances of a user's jobs that have not ended; ANY stands for every user, or any type."""

    user: str
    instance_type: str
    kind: CapacityKind
    limit: int


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A quota and what is in use of it: by its user or, where it is for every user, by the one who uses most."""

    quota: Quota
    use: int


def taken(instance_types: Sequence[str], *, kind: CapacityKind) -> Mapping[str, int]:
    """What the instances of a job, of these types, add to which counters of its account."""
    each = {_counter(name, kind): instance_types.count(name) for name in set(instance_types)}
    return each | {_counter(ANY, kind): len(instance_types)}


class Quotas:
    """The quotas of a yard. Safe to share between threads."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def list(self, user: str | None = None) -> Sequence[QuotaUse]:
        """All quotas, by user, type and kind; with a user, those that concern it, with its own use."""
        users = {each.account: each.name for each in self._records.users()}
        if user is None:
            known, counters = users, self._records.counters()
        else:
            account = self._user(user).account
            known, counters = {account: user}, self._records.counters(account)
        found = [_quota_of(resource, known) for resource in self._all()]
        return [QuotaUse(quota, _use(quota, counters, known)) for quota in found if quota is not None]

    def put(self, quota: Quota, *, now: datetime) -> None:
        """Set a limit; NotFound when there is no such user. Jobs that run already are left alone."""
        if not 0 <= quota.limit <= MAX_LIMIT:
            raise InvalidRequest(f"A quota of {quota.limit} cannot be set; it must be 0 to {MAX_LIMIT}.")
        key = self._key(quota.user, quota.instance_type, kind=quota.kind)
        while True:
            try:
                self._records.create(Draft(key, "", {"limit": quota.limit}), now=now)
                return
            except AlreadyExists:
                if self._changed(key, quota.limit, now=now):
                    return

    def remove(self, user: str, instance_type: str, *, kind: CapacityKind, now: datetime) -> None:
        """Take a limit away; NotFound when there is none."""
        key = self._key(user, instance_type, kind=kind)
        try:
            while not self._records.delete(self._records.load(key), now=now):
                pass
        except NotFound as error:
            raise NotFound(KIND, f"{user} {instance_type} {kind}") from error

    def limits(self, account: str, instance_types: Iterable[str], *, kind: CapacityKind) -> Mapping[str, int]:
        """The limits that bind a new job of these types, by the counters that `taken` names."""
        limits = {resource.key.name: int(resource.body["limit"]) for resource in self._binding(account)}
        found = {}
        for wanted in {*instance_types, ANY}:
            own = limits.get(_name(account, wanted, kind=kind))
            limit = limits.get(_name(ANY, wanted, kind=kind)) if own is None else own
            if limit is not None:
                found[_counter(wanted, kind)] = limit
        return found

    def check(self, account: str, instance_type: str, count: int, *, kind: CapacityKind) -> None:
        """LimitExceeded when a job of so many instances would be refused now."""
        limits = self.limits(account, [instance_type], kind=kind)
        values = {each.name: each.value for each in self._records.counters(account)} if limits else {}
        for name, limit in limits.items():
            if (value := values.get(name, 0)) + count > limit:
                raise self.exceeded(CounterFull(Counter(account, name, value), limit=limit, added=count))

    def exceeded(self, full: CounterFull) -> LimitExceeded:
        """The refusal of a job, in the words of AWS and with the command that helps."""
        _, kind, *types = full.counter.name.split("/", 2)
        instance_type = types[0] if types else ANY
        spot = "spot " if kind == CapacityKind.SPOT else ""
        what = f"{instance_type} for {spot}training job usage"
        if instance_type == ANY:
            what = f"Number of instances across all {spot}training jobs"
        use, user = full.counter.value, self._records.user(full.counter.account).name
        named = "'*'" if instance_type == ANY else instance_type
        command = f"trainyard quota set {user} {named} {use + full.added}{' --spot' if spot else ''}"
        return LimitExceeded(
            f"The account-level service limit '{what}' is {full.limit} Instances, with current utilization of {use} "
            f"Instances and a request delta of {full.added} Instances. Wait until a job has ended, or ask an "
            f"administrator to raise the limit with `{command}`."
        )

    def _user(self, name: str) -> User:
        for user in self._records.users():
            if user.name == name:
                return user
        raise NotFound("user", name)

    def _key(self, user: str, instance_type: str, *, kind: CapacityKind) -> ResourceKey:
        account = ANY if user == ANY else self._user(user).account
        return ResourceKey(_OF_THE_YARD, KIND, _name(account, instance_type, kind=kind))

    def _changed(self, key: ResourceKey, limit: int, *, now: datetime) -> bool:
        try:
            known = self._records.load(key)
        except NotFound:  # removed meanwhile
            return False
        return self._records.apply(known, Change(body={"limit": limit}), now=now) is not None

    def _binding(self, account: str) -> Sequence[Resource]:
        return [*self._all(f"{account}/"), *self._all(f"{ANY}/")]

    def _all(self, prefix: str = "") -> Sequence[Resource]:
        found: list[Resource] = []
        after: str | None = ""
        while after is not None:
            page = self._records.find(
                Query(KIND, account=_OF_THE_YARD, name_prefix=prefix, sort_by=SortBy.NAME, limit=_PAGE, after=after)
            )
            found += page.resources
            after = page.next_after
        return found


def _counter(instance_type: str, kind: CapacityKind) -> str:
    return f"{_COUNTER}/{kind}" if instance_type == ANY else f"{_COUNTER}/{kind}/{instance_type}"


def _name(account: str, instance_type: str, *, kind: CapacityKind) -> str:
    return f"{account}/{kind}/{instance_type}"


def _quota_of(resource: Resource, users: Mapping[str, str]) -> Quota | None:
    """None for the quota of a user who is not among those asked for, or is gone."""
    account, kind, instance_type = resource.key.name.split("/", 2)
    user = ANY if account == ANY else users.get(account)
    return None if user is None else Quota(user, instance_type, CapacityKind(kind), resource.body["limit"])


def _use(quota: Quota, counters: Sequence[Counter], users: Mapping[str, str]) -> int:
    name = _counter(quota.instance_type, quota.kind)
    values = (
        counter.value
        for counter in counters
        if counter.name == name and quota.user in (ANY, users.get(counter.account))
    )
    return max(values, default=0)
