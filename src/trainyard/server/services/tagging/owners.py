"""Whose tags an ARN names, and where they are kept: a bucket's with the bucket, all others in the records."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.locations import BucketRef
from trainyard.server import roles
from trainyard.server.records.contract import ResourceKey, TaggedArn
from trainyard.server.services.contract import Call
from trainyard.server.services.ecr.repositories import repository_arn
from trainyard.server.services.ecr.tags import repository_of_arn
from trainyard.server.services.iam import managed, profiles
from trainyard.server.services.logs.groups import group_arn, load_group
from trainyard.server.services.s3.addressing import resolve
from trainyard.server.services.sagemaker.tags import tagged_resource

BUCKET_PREFIX = "arn:aws:s3:::"

_ARN = re.compile(r"arn:aws:(?P<service>[a-z0-9-]+):[a-z0-9-]*:(?P<account>[0-9]*):(?P<resource>[ -~]+)")


@dataclass(frozen=True, slots=True)
class ArnParts:
    """What an ARN says of its resource. `type` is the word before the first slash or colon, as `training-job`."""

    service: str
    account: str
    type: str


def parse_arn(arn: str) -> ArnParts:
    found = _ARN.fullmatch(arn)
    if found is None:
        raise InvalidRequest(f'"{arn}" is not an ARN.')
    word, *rest = re.split("[:/]", found["resource"], maxsplit=1)
    return ArnParts(found["service"], found["account"], word if rest else "bucket")


class TagOwner(Protocol):
    """Something that exists, is visible to the caller, and has tags."""

    def tags(self) -> Mapping[str, str]: ...

    def put(self, tags: Mapping[str, str]) -> None: ...

    def remove(self, keys: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Recorded:
    call: Call
    account: str
    arn: str

    def tags(self) -> Mapping[str, str]:
        return self.call.yard.records.tags(self.account, self.arn)

    def put(self, tags: Mapping[str, str]) -> None:
        self.call.yard.records.set_tags(self.account, self.arn, tags)

    def remove(self, keys: Sequence[str]) -> None:
        self.call.yard.records.remove_tags(self.account, self.arn, keys)


@dataclass(frozen=True, slots=True)
class _BucketTags:
    call: Call
    ref: BucketRef

    def tags(self) -> Mapping[str, str]:
        return self.call.yard.objects.bucket(self.ref).tags

    def put(self, tags: Mapping[str, str]) -> None:
        self.call.yard.objects.tag_bucket(self.ref, {**self.tags(), **tags})

    def remove(self, keys: Sequence[str]) -> None:
        kept = {key: value for key, value in self.tags().items() if key not in keys}
        self.call.yard.objects.tag_bucket(self.ref, kept)


def owner_of(call: Call, arn: str) -> TagOwner:
    """What an ARN names; NotFound when the caller sees no such thing, InvalidRequest when it cannot have tags here."""
    parts = parse_arn(arn)
    find = _OWNERS.get((parts.service, parts.type))
    if find is None:
        raise InvalidRequest(f'Tags of "{parts.service}:{parts.type}" are not served by this API.')
    if parts.account and call.caller.scope not in (None, parts.account):
        raise NotFound("resource", arn)
    return find(call, arn)


def buckets_with_tags(call: Call) -> list[TaggedArn]:
    """The buckets that have tags and that the caller may see, in the order of ARN and account."""
    found = [
        TaggedArn(bucket.ref.account, f"{BUCKET_PREFIX}{bucket.ref.name}", bucket.tags)
        for bucket in call.yard.objects.buckets(account=call.caller.scope)
        if bucket.tags
    ]
    return sorted(found, key=lambda tagged: (tagged.arn, tagged.account))


def _bucket(call: Call, arn: str) -> TagOwner:
    ref = resolve(call, arn.removeprefix(BUCKET_PREFIX))
    call.yard.objects.bucket(ref)
    return _BucketTags(call, ref)


def _log_group(call: Call, arn: str) -> TagOwner:
    group = load_group(call, arn)
    return _Recorded(call, group.key.account, group_arn(group))


def _repository(call: Call, arn: str) -> TagOwner:
    repository = repository_of_arn(call, arn)
    return _Recorded(call, repository.key.account, repository_arn(repository))


def _role(call: Call, arn: str) -> TagOwner:
    return _Recorded(call, roles.load_role(call.yard.records, arn).key.account, arn)


def _instance_profile(call: Call, arn: str) -> TagOwner:
    key = ResourceKey(parse_arn(arn).account, profiles.KIND, arn.rpartition("/")[2])
    profile = call.yard.records.load(key)
    if profiles.arn_of(profile) != arn:
        raise NotFound(profiles.KIND, arn)
    return _Recorded(call, key.account, arn)


def _job(call: Call, arn: str) -> TagOwner:
    found = tagged_resource(call, arn)
    return _Recorded(call, found.account, found.arn)


def _policy(call: Call, arn: str) -> TagOwner:
    return _Recorded(call, managed.load_policy(call, arn).key.account, arn)


_OWNERS: Mapping[tuple[str, str], Callable[[Call, str], TagOwner]] = {
    ("s3", "bucket"): _bucket,
    ("logs", "log-group"): _log_group,
    ("ecr", "repository"): _repository,
    ("sagemaker", "training-job"): _job,
    ("sagemaker", "hyper-parameter-tuning-job"): _job,
    ("iam", "role"): _role,
    ("iam", "policy"): _policy,
    ("iam", "instance-profile"): _instance_profile,
}
