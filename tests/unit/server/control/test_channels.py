import json

import pytest

from tests.unit.server.services.accounts import Accounts
from tests.unit.server.services.sagemaker.requests import fill_bucket
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs import ChannelPlan
from trainyard.objects.contract import ObjectStore
from trainyard.server.control.channels import channel_spec, contents_of

KEYS = [f"train/{number:04}.csv" for number in range(1500)]


@pytest.fixture
def objects(accounts: Accounts) -> ObjectStore:
    files = {"train.manifest": manifest("s3://data/train/", "0001.csv", "0007.csv"), "bad.manifest": b"[1, 2]"}
    fill_bucket(accounts.yard, "111111111111", {**dict.fromkeys(KEYS, b"x"), **files})
    return accounts.yard.objects


def manifest(prefix: str, *rests: str) -> bytes:
    return json.dumps([{"prefix": prefix}, *rests]).encode()


def keys(objects: ObjectStore, channel: ChannelPlan) -> list[str]:
    return list(contents_of(objects, channel, account="111111111111").keys)


def test_a_prefix_gives_all_its_objects_however_many(objects: ObjectStore) -> None:
    assert keys(objects, ChannelPlan("train", "s3://data/train/")) == KEYS
    assert keys(objects, ChannelPlan("train", "s3://data/train/00")) == KEYS[:100]


def test_a_manifest_gives_what_it_lists(objects: ObjectStore) -> None:
    channel = ChannelPlan("train", "s3://data/train.manifest", is_manifest=True)
    contents = contents_of(objects, channel, account="111111111111")
    assert (contents.prefix.key, contents.keys) == ("train/", ["train/0001.csv", "train/0007.csv"])


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        (ChannelPlan("c", "s3://data/none/"), 'no objects under "s3://data/none/"'),
        (ChannelPlan("c", "s3://nowhere/x"), '"c" cannot be read'),
        (ChannelPlan("c", "s3://data/bad.manifest", is_manifest=True), "not a manifest"),
        (ChannelPlan("c", "s3://data/none", is_manifest=True), '"c" cannot be read'),
    ],
)
def test_a_channel_without_data_is_told_by_name(objects: ObjectStore, channel: ChannelPlan, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        keys(objects, channel)


def test_a_seed_shuffles_always_alike(objects: ObjectStore) -> None:
    once, again = (keys(objects, ChannelPlan("c", "s3://data/train/", shuffle_seed=7)) for _ in range(2))
    assert once == again != KEYS
    assert sorted(once) == KEYS


def test_sharded_objects_go_to_one_instance_each(objects: ObjectStore) -> None:
    channel = ChannelPlan("train", "s3://data/train/", is_sharded=True)
    contents = contents_of(objects, channel, account="111111111111")
    shares = [channel_spec(channel, contents, number=number, count=4) for number in range(4)]
    assert sorted(key for share in shares for key in share.keys) == KEYS
    assert {len(share.keys) for share in shares} == {375}
    assert shares[0].distribution == "ShardedByS3Key"
