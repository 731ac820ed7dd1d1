import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.server.services.accounts import Accounts, open_accounts
from tests.unit.server.services.sagemaker.requests import fill_bucket
from trainyard.engines.file_systems import FileSystems
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.channels import ChannelPlan
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, ObjectStore
from trainyard.server.channel_contents import ChannelContents, channel_spec, load_contents

NO_FILE_SYSTEMS = FileSystems(Path("/none"))
KEYS = [f"train/{number:04}.csv" for number in range(120)]


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    with open_accounts(tmp_path) as opened:
        yield opened


@pytest.fixture
def objects(accounts: Accounts) -> ObjectStore:
    files = {"train.manifest": manifest("s3://data/train/", "0001.csv", "0007.csv"), "bad.manifest": b"[1, 2]"}
    fill_bucket(accounts.yard, "111111111111", {**dict.fromkeys(KEYS, b"x"), **files})
    return accounts.yard.objects


def manifest(prefix: str, *rests: str) -> bytes:
    return json.dumps([{"prefix": prefix}, *rests]).encode()


def keys(objects: ObjectStore, channel: ChannelPlan) -> list[str]:
    return list(load_contents(objects, channel, account="111111111111", file_systems=NO_FILE_SYSTEMS).keys)


def test_a_prefix_gives_all_objects_that_start_with_it(objects: ObjectStore) -> None:
    assert keys(objects, ChannelPlan("train", "s3://data/train/")) == KEYS
    assert keys(objects, ChannelPlan("train", "s3://data/train/00")) == KEYS[:100]


def test_a_prefix_gives_more_objects_than_one_page_of_a_listing(accounts: Accounts) -> None:
    many = [f"all/{number:04}" for number in range(1200)]
    fill_bucket(accounts.yard, "111111111111", dict.fromkeys(many, b"x"), bucket="many")
    assert keys(accounts.yard.objects, ChannelPlan("all", "s3://many/all/")) == many


@pytest.mark.parametrize("seed", [None, 7])
def test_objects_keep_the_etags_and_sizes_of_their_listing(objects: ObjectStore, seed: int | None) -> None:
    fill = {f"sized/{number}": b"x" * number for number in range(10)}
    for key, body in fill.items():
        writer = objects.writer(Location(BucketRef("111111111111", "data"), key), Attributes())
        writer.write(body)
        writer.commit(now=utc_now())
    plan = ChannelPlan("c", "s3://data/sized/", is_sharded=True, shuffle_seed=seed)
    contents = load_contents(objects, plan, account="111111111111", file_systems=NO_FILE_SYSTEMS)
    told = [channel_spec(plan, contents, number=number, count=3) for number in range(3)]
    rows = [row for spec in told for row in zip(spec.keys, spec.etags, spec.sizes, strict=True)]
    assert sorted(rows) == [(key, hashlib.md5(body).hexdigest(), len(body)) for key, body in sorted(fill.items())]


def test_the_reader_looks_up_the_objects_of_a_manifest(objects: ObjectStore) -> None:
    plan = ChannelPlan("train", "s3://data/train.manifest", is_manifest=True)
    contents = load_contents(objects, plan, account="111111111111", file_systems=NO_FILE_SYSTEMS)
    told = channel_spec(plan, contents, number=0, count=1)
    assert (list(told.etags), list(told.sizes)) == ([], [])


def test_a_manifest_gives_the_objects_that_it_lists(objects: ObjectStore) -> None:
    channel = ChannelPlan("train", "s3://data/train.manifest", is_manifest=True)
    contents = load_contents(objects, channel, account="111111111111", file_systems=NO_FILE_SYSTEMS)
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
def test_the_error_for_a_channel_without_data_has_its_name(
    objects: ObjectStore, channel: ChannelPlan, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        keys(objects, channel)


def test_a_seed_always_gives_the_same_order(objects: ObjectStore) -> None:
    once, again = (keys(objects, ChannelPlan("c", "s3://data/train/", shuffle_seed=7)) for _ in range(2))
    assert once == again != KEYS
    assert sorted(once) == KEYS


def test_sharded_objects_go_to_one_instance_each(objects: ObjectStore) -> None:
    channel = ChannelPlan("train", "s3://data/train/", is_sharded=True)
    contents = load_contents(objects, channel, account="111111111111", file_systems=NO_FILE_SYSTEMS)
    shares = [channel_spec(channel, contents, number=number, count=4) for number in range(4)]
    assert sorted(key for share in shares for key in share.keys) == KEYS
    assert {len(share.keys) for share in shares} == {30}
    assert shares[0].distribution == "ShardedByS3Key"


def test_every_instance_gets_all_objects_that_are_sharded_again_in_each_epoch(objects: ObjectStore) -> None:
    channel = ChannelPlan("train", "s3://data/train/", mode="Pipe", is_sharded=True, shuffle_seed=7)
    contents = load_contents(objects, channel, account="111111111111", file_systems=NO_FILE_SYSTEMS)
    first, second = (channel_spec(channel, contents, number=number, count=2) for number in range(2))
    assert first.keys == second.keys
    assert sorted(first.keys) == KEYS
    assert [(spec.part, spec.parts, spec.distribution) for spec in (first, second)] == [
        (0, 2, "ShardedByS3Key"),
        (1, 2, "ShardedByS3Key"),
    ]


def test_files_that_are_shuffled_and_sharded_go_to_one_instance_each(objects: ObjectStore) -> None:
    channel = ChannelPlan("train", "s3://data/train/", is_sharded=True, shuffle_seed=7)
    contents = load_contents(objects, channel, account="111111111111", file_systems=NO_FILE_SYSTEMS)
    shares = [channel_spec(channel, contents, number=number, count=4) for number in range(4)]
    assert sorted(key for share in shares for key in share.keys) == KEYS
    assert {len(share.keys) for share in shares} == {30}


def test_45_objects_on_3_instances_are_15_each(objects: ObjectStore) -> None:
    channel = ChannelPlan("train", "s3://data/train/00", is_sharded=True)
    contents = load_contents(objects, channel, account="111111111111", file_systems=NO_FILE_SYSTEMS)
    shares = [
        channel_spec(channel, ChannelContents(contents.prefix, contents.keys[:45]), number=number, count=3).keys
        for number in range(3)
    ]
    assert [len(share) for share in shares] == [15, 15, 15]
    assert sorted(key for share in shares for key in share) == KEYS[:45]


def test_an_instance_gets_everything_that_a_pipe_needs(objects: ObjectStore) -> None:
    channel = ChannelPlan(
        "train", "s3://data/train/00", mode="Pipe", record_wrapper="RecordIO", compression="Gzip", shuffle_seed=7
    )
    contents = load_contents(objects, channel, account="111111111111", file_systems=NO_FILE_SYSTEMS)
    spec = channel_spec(channel, contents, number=0, count=1)
    assert (spec.mode, spec.record_wrapper, spec.compression, spec.shuffle_seed) == ("Pipe", "RecordIO", "Gzip", 7)
    assert sorted(spec.keys) == KEYS[:100]


def test_every_instance_gets_an_augmented_manifest_itself_and_the_names_of_its_attributes(objects: ObjectStore) -> None:
    uri, names = "s3://data/train.manifest", ("image-ref", "label")
    channel = ChannelPlan("train", uri, mode="Pipe", attributes=names, is_sharded=True)
    contents = load_contents(objects, channel, account="111111111111", file_systems=NO_FILE_SYSTEMS)
    specs = [channel_spec(channel, contents, number=number, count=2) for number in range(2)]
    assert [(list(spec.keys), tuple(spec.attributes)) for spec in specs] == [(["train.manifest"], names)] * 2
    assert {spec.distribution for spec in specs} == {"ShardedByS3Key"}


def test_a_file_system_gives_a_directory_in_its_folder(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "home").mkdir()
    file = tmp_path / "home/file_systems.toml"
    file.write_text(f'[file_systems]\nfs-00000000 = "{tmp_path / "shared"}"\n')
    channel = ChannelPlan("sets", "", file_system="fs-00000000", directory="a/b", is_writable=False)
    contents = load_contents(objects, channel, account="111111111111", file_systems=FileSystems(file))
    spec = channel_spec(channel, contents, number=0, count=1)
    assert (spec.folder, spec.directory, spec.is_writable) == (str(tmp_path / "shared"), "a/b", False)
    assert list(spec.keys) == []


def test_a_file_system_that_maps_to_a_prefix_gives_its_objects_read_only(objects: ObjectStore, tmp_path: Path) -> None:
    file = tmp_path / "file_systems.toml"
    file.write_text('[file_systems]\n"fs-00000000" = "s3://data/"\n')
    systems = FileSystems(file, cache=tmp_path / "cache")
    channel = ChannelPlan("shared", "", file_system="fs-00000000", directory="train", is_writable=False)
    spec = channel_spec(
        channel, load_contents(objects, channel, account="111111111111", file_systems=systems), number=0, count=1
    )
    assert (spec.bucket, spec.prefix, spec.folder, spec.directory) == ("data", "train/", "", "")
    assert sorted(spec.keys) == KEYS
    assert len(spec.etags) == len(spec.sizes) == len(KEYS)
    assert (spec.is_writable, spec.cache) == (False, str(tmp_path / "cache"))
    nothing = replace(channel, directory="none")
    with pytest.raises(InvalidRequest, match=r"no objects under .s3://data/none/"):
        load_contents(objects, nothing, account="111111111111", file_systems=systems)
