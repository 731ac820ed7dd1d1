"""Find the resource of an ARN and its tags: a bucket stores its own, all others are in the records."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.locations import BucketRef
from trainyard.server import roles
from trainyard.server.records.contract import ResourceKey, TaggedArn
from trainyard.server.services.contract import Call
from trainyard.server.services.ecr.repositories import repository_arn, repository_of_arn
from trainyard.server.services.iam.resources import INSTANCE_PROFILE, arn_of_profile, load_policy
from trainyard.server.services.logs.groups import group_arn, load_group
from trainyard.server.services.s3.addressing import resolve_bucket
from trainyard.server.services.sagemaker.tags import load_tagged_resource

BUCKET_PREFIX = "arn:aws:s3:::"

_ARN = re.compile(r"arn:aws:(?P<service>[a-z0-9-]+):[a-z0-9-]*:(?P<account>[0-9]*):(?P<resource>[ -~]+)")


@dataclass(frozen=True, slots=True)
class ArnParts:
    """The parts of an ARN. `type` is the first word of its resource, such as `training-job`."""

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
    """A resource that exists, is visible to the caller, and can have tags."""

    def tags(self) -> Mapping[str, str]: ...

    def put(self, tags: Mapping[str, str]) -> None: ...

    def remove(self, keys: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class _RecordedTags:
    """The tags of a resource in the records."""

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
    """The tags of a bucket, in the object store."""

    call: Call
    ref: BucketRef

    def tags(self) -> Mapping[str, str]:
        return self.call.yard.objects.bucket(self.ref).tags

    def put(self, tags: Mapping[str, str]) -> None:
        self.call.yard.objects.tag_bucket(self.ref, {**self.tags(), **tags})

    def remove(self, keys: Sequence[str]) -> None:
        remaining = {key: value for key, value in self.tags().items() if key not in keys}
        self.call.yard.objects.tag_bucket(self.ref, remaining)


def owner_of(call: Call, arn: str) -> TagOwner:
    """Return the resource of an ARN; NotFound if the caller cannot see it, InvalidRequest if it cannot be tagged."""
    parts = parse_arn(arn)
    load = _LOADERS.get((parts.service, parts.type))
    if load is None:
        raise InvalidRequest(f'Resources of the type "{parts.service}:{parts.type}" cannot be tagged through this API.')
    if parts.account and call.caller.scope not in (None, parts.account):
        raise NotFound("resource", arn)
    return load(call, arn)


def buckets_with_tags(call: Call) -> list[TaggedArn]:
    """Return the tagged buckets that the caller can see, sorted by ARN and account."""
    found = [
        TaggedArn(bucket.ref.account, f"{BUCKET_PREFIX}{bucket.ref.name}", bucket.tags)
        for bucket in call.yard.objects.buckets(account=call.caller.scope)
        if bucket.tags
    ]
    return sorted(found, key=lambda tagged: (tagged.arn, tagged.account))


def _load_bucket(call: Call, arn: str) -> TagOwner:
    ref = resolve_bucket(call, arn.removeprefix(BUCKET_PREFIX))
    call.yard.objects.bucket(ref)
    return _BucketTags(call, ref)


def _load_log_group(call: Call, arn: str) -> TagOwner:
    group = load_group(call, arn)
    return _RecordedTags(call, group.key.account, group_arn(group))


def _load_repository(call: Call, arn: str) -> TagOwner:
    repository = repository_of_arn(call, arn)
    return _RecordedTags(call, repository.key.account, repository_arn(repository))


def _load_role(call: Call, arn: str) -> TagOwner:
    return _RecordedTags(call, roles.load_role(call.yard.records, arn).key.account, arn)


def _load_instance_profile(call: Call, arn: str) -> TagOwner:
    key = ResourceKey(parse_arn(arn).account, INSTANCE_PROFILE, arn.rpartition("/")[2])
    profile = call.yard.records.load(key)
    if arn_of_profile(profile) != arn:
        raise NotFound(INSTANCE_PROFILE, arn)
    return _RecordedTags(call, key.account, arn)


def _load_job(call: Call, arn: str) -> TagOwner:
    found = load_tagged_resource(call, arn)
    return _RecordedTags(call, found.account, found.arn)


def _load_policy(call: Call, arn: str) -> TagOwner:
    return _RecordedTags(call, load_policy(call, arn).key.account, arn)


_LOADERS: Mapping[tuple[str, str], Callable[[Call, str], TagOwner]] = {
    ("s3", "bucket"): _load_bucket,
    ("logs", "log-group"): _load_log_group,
    ("ecr", "repository"): _load_repository,
    ("sagemaker", "training-job"): _load_job,
    ("sagemaker", "processing-job"): _load_job,
    ("sagemaker", "hyper-parameter-tuning-job"): _load_job,
    ("iam", "role"): _load_role,
    ("iam", "policy"): _load_policy,
    ("iam", "instance-profile"): _load_instance_profile,
}
