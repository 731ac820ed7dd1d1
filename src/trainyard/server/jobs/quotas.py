"""How many instances a user's jobs may have at once: by instance type and in total, for on-demand and for spot.

There are no limits until one is set. A limit for every user applies to each user separately; a user's own limit
replaces it. A limit for any type counts all types together and applies in addition to limits of single types. A counter
holds the current use. The records update it in the transaction that creates or ends a job, so concurrent creates cannot
exceed a limit and a crash cannot leave it wrong.
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
# Stands for every user, or for any instance type.
ANY = "*"
MAX_LIMIT = 1_000_000

# Quotas belong to no user account, least of all to the one that they limit.
_YARD_ACCOUNT = "000000000000"
_COUNTER = "training-instances"
_PAGE = 1000


class CapacityKind(StrEnum):
    """The kind of capacity that a job uses."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on the instances of a user's jobs that have not ended. ANY stands for every user, or for any type."""

    user: str
    instance_type: str
    kind: CapacityKind
    limit: int


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A quota and its use: by its user or, if it applies to every user, by the user who uses most."""

    quota: Quota
    use: int


def quota_counts(instance_types: Sequence[str], *, kind: CapacityKind) -> Mapping[str, int]:
    """Return what a job with instances of these types adds to the counters of its account."""
    each = {_counter(name, kind): instance_types.count(name) for name in set(instance_types)}
    return each | {_counter(ANY, kind): len(instance_types)}


class Quotas:
    """The quotas of a yard. Safe to share between threads."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def list(self, user: str | None = None) -> Sequence[QuotaUse]:
        """Return all quotas by user, type and kind. With a user, return those that apply to it, with its own use."""
        users = {each.account: each.name for each in self._records.users()}
        if user is None:
            known, counters = users, self._records.counters()
        else:
            account = self._load_user(user).account
            known, counters = {account: user}, self._records.counters(account)
        found = [_quota_of(resource, known) for resource in self._load_all()]
        return [QuotaUse(quota, _use(quota, counters, known)) for quota in found if quota is not None]

    def put(self, quota: Quota, *, now: datetime) -> None:
        """Set a limit. NotFound when there is no such user. Running jobs are not affected."""
        if not 0 <= quota.limit <= MAX_LIMIT:
            raise InvalidRequest(f"A quota of {quota.limit} cannot be set; it must be 0 to {MAX_LIMIT}.")
        key = self._key(quota.user, quota.instance_type, kind=quota.kind)
        while True:
            try:
                self._records.create(Draft(key, "", {"limit": quota.limit}), now=now)
                return
            except AlreadyExists:
                if self._try_change(key, quota.limit, now=now):
                    return

    def remove(self, user: str, instance_type: str, *, kind: CapacityKind, now: datetime) -> None:
        """Remove a limit. NotFound when there is none."""
        key = self._key(user, instance_type, kind=kind)
        try:
            while not self._records.delete(self._records.load(key), now=now):
                pass
        except NotFound as error:
            raise NotFound(KIND, f"{user} {instance_type} {kind}") from error

    def limits(self, account: str, instance_types: Iterable[str], *, kind: CapacityKind) -> Mapping[str, int]:
        """Return the limits for a new job with these types, by the counter names of `quota_counts`."""
        limits = {resource.key.name: int(resource.body["limit"]) for resource in self._load_applicable(account)}
        found = {}
        for wanted in {*instance_types, ANY}:
            own = limits.get(_name(account, wanted, kind=kind))
            limit = limits.get(_name(ANY, wanted, kind=kind)) if own is None else own
            if limit is not None:
                found[_counter(wanted, kind)] = limit
        return found

    def check(self, account: str, instance_type: str, count: int, *, kind: CapacityKind) -> None:
        """Raise LimitExceeded when a job with `count` instances would be refused now."""
        limits = self.limits(account, [instance_type], kind=kind)
        values = {each.name: each.value for each in self._records.counters(account)} if limits else {}
        for name, limit in limits.items():
            if (value := values.get(name, 0)) + count > limit:
                raise self.limit_error(CounterFull(Counter(account, name, value), limit=limit, added=count))

    def limit_error(self, full: CounterFull, *, noun: str = "training job") -> LimitExceeded:
        """Return the error that refuses a job, in the words of AWS and with the command that raises the limit."""
        _, kind, *types = full.counter.name.split("/", 2)
        instance_type = types[0] if types else ANY
        spot = "spot " if kind == CapacityKind.SPOT else ""
        what = f"{instance_type} for {spot}{noun} usage"
        if instance_type == ANY:
            what = f"Number of instances across all {spot}{noun}s"
        use, user = full.counter.value, self._records.user(full.counter.account).name
        named = "'*'" if instance_type == ANY else instance_type
        command = f"trainyard quota set {user} {named} {use + full.added}{' --spot' if spot else ''}"
        return LimitExceeded(
            f"The account-level service limit '{what}' is {full.limit} Instances, with current utilization of {use} "
            f"Instances and a request delta of {full.added} Instances. Wait until a job has ended, or ask an "
            f"administrator to raise the limit with `{command}`."
        )

    def _load_user(self, name: str) -> User:
        for user in self._records.users():
            if user.name == name:
                return user
        raise NotFound("user", name)

    def _key(self, user: str, instance_type: str, *, kind: CapacityKind) -> ResourceKey:
        account = ANY if user == ANY else self._load_user(user).account
        return ResourceKey(_YARD_ACCOUNT, KIND, _name(account, instance_type, kind=kind))

    def _try_change(self, key: ResourceKey, limit: int, *, now: datetime) -> bool:
        try:
            known = self._records.load(key)
        except NotFound:
            # It was removed meanwhile.
            return False
        return self._records.apply(known, Change(body={"limit": limit}), now=now) is not None

    def _load_applicable(self, account: str) -> Sequence[Resource]:
        return [*self._load_all(f"{account}/"), *self._load_all(f"{ANY}/")]

    def _load_all(self, prefix: str = "") -> Sequence[Resource]:
        found: list[Resource] = []
        after: str | None = ""
        while after is not None:
            page = self._records.find(
                Query(KIND, account=_YARD_ACCOUNT, name_prefix=prefix, sort_by=SortBy.NAME, limit=_PAGE, after=after)
            )
            found += page.resources
            after = page.next_after
        return found


def _counter(instance_type: str, kind: CapacityKind) -> str:
    return f"{_COUNTER}/{kind}" if instance_type == ANY else f"{_COUNTER}/{kind}/{instance_type}"


def _name(account: str, instance_type: str, *, kind: CapacityKind) -> str:
    return f"{account}/{kind}/{instance_type}"


def _quota_of(resource: Resource, users: Mapping[str, str]) -> Quota | None:
    """Return the quota, or None if its user is not among `users`."""
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
