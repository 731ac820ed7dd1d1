from pathlib import Path
from typing import Any

import pytest

from trainyard.amazon.amazon_estimator import FileSystemRecordSet
from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import FileSystemInput, Input, ShuffleConfig, TrainingInput, channels, s3_input, upload_local


def test_a_location_alone_is_the_training_channel() -> None:
    assert channels("s3://bucket/data") == [
        {
            "ChannelName": "training",
            "DataSource": {
                "S3DataSource": {
                    "S3DataType": "S3Prefix",
                    "S3Uri": "s3://bucket/data",
                    "S3DataDistributionType": "FullyReplicated",
                }
            },
        }
    ]


def test_no_input_is_no_channel() -> None:
    assert channels(None) == []


def test_every_property_of_an_input_has_its_member() -> None:
    given = TrainingInput(
        "s3://bucket/data",
        "ShardedByS3Key",
        "Gzip",
        "text/csv",
        "RecordIO",
        "ManifestFile",
        ["group"],
        "Pipe",
        ["name"],
        "target",
        ShuffleConfig(3),
    )

    assert given.config == {
        "DataSource": {
            "S3DataSource": {
                "S3DataType": "ManifestFile",
                "S3Uri": "s3://bucket/data",
                "S3DataDistributionType": "ShardedByS3Key",
                "InstanceGroupNames": ["group"],
                "AttributeNames": ["name"],
            }
        },
        "CompressionType": "Gzip",
        "ContentType": "text/csv",
        "RecordWrapperType": "RecordIO",
        "InputMode": "Pipe",
        "TargetAttributeName": "target",
        "ShuffleConfig": {"Seed": 3},
    }


def test_channels_keep_their_names_and_their_order() -> None:
    given: dict[str, Input] = {
        "val": TrainingInput("s3://bucket/v"),
        "train": "s3://bucket/t",
        "fast": FileSystemInput("fs-1", "EFS", "/d"),
    }

    assert [channel["ChannelName"] for channel in channels(given)] == ["val", "train", "fast"]


def test_a_file_system_is_a_source_of_its_own_kind() -> None:
    (channel,) = channels(FileSystemInput("fs-1", "FSxLustre", "/mnt/data"))

    assert channel["DataSource"] == {
        "FileSystemDataSource": {
            "FileSystemId": "fs-1",
            "FileSystemType": "FSxLustre",
            "DirectoryPath": "/mnt/data",
            "FileSystemAccessMode": "ro",
        }
    }


def test_the_error_for_a_local_path_says_how_to_upload_it() -> None:
    with pytest.raises(InvalidRequest, match=r'"data/train" is not on S3; write file://data/train'):
        channels("data/train")


def test_a_file_system_has_two_kinds() -> None:
    with pytest.raises(InvalidRequest, match='file_system_type is "NFS"; it can be EFS or FSxLustre'):
        FileSystemInput("fs-1", "NFS", "/mnt/data")


def test_the_name_of_the_first_sdk_still_works() -> None:
    assert (
        s3_input("s3://bucket/data", "ShardedByS3Key").config
        == TrainingInput("s3://bucket/data", "ShardedByS3Key").config
    )


@pytest.mark.parametrize(
    ("argument", "value", "allowed"),
    [
        ("distribution", "ShardedByKey", "FullyReplicated or ShardedByS3Key"),
        ("compression", "gzip", "None or Gzip"),
        ("record_wrapping", "recordio", "None or RecordIO"),
        ("s3_data_type", "Prefix", "S3Prefix, ManifestFile or AugmentedManifestFile"),
        ("input_mode", "Fastfile", "File, FastFile or Pipe"),
    ],
)
def test_the_error_for_a_misspelt_word_lists_the_choices(argument: str, value: str, allowed: str) -> None:
    options: dict[str, Any] = {argument: value}
    with pytest.raises(InvalidRequest, match=f'^{argument} is "{value}"; it can be {allowed}.$'):
        TrainingInput("s3://bucket/data", **options)


def test_a_record_set_names_its_channel() -> None:
    records = FileSystemRecordSet("fs-1", "EFS", "/mnt/data", 100, 10, "rw", "test")
    (channel,) = channels(records)

    assert channel == {**FileSystemInput("fs-1", "EFS", "/mnt/data", "rw").config, "ChannelName": "test"}
    assert channels(records.data_channel()) == [channel]
    assert (records.num_records, records.feature_dim) == (100, 10)


def test_several_record_sets_are_as_many_channels() -> None:
    sets = [FileSystemRecordSet("fs-1", "EFS", "/mnt", 1, 1, channel=name) for name in ("train", "test")]

    assert [channel["ChannelName"] for channel in channels(sets)] == ["train", "test"]


def test_two_record_sets_cannot_share_a_channel() -> None:
    with pytest.raises(InvalidRequest, match='Two record sets have the channel "train"'):
        channels([FileSystemRecordSet("fs-1", "EFS", "/mnt", 1, 1)] * 2)


@pytest.mark.parametrize("inputs", [3, ["s3://bucket/data"], {"train": 3}])
def test_the_error_for_an_invalid_input_says_what_a_valid_one_is(inputs: Any) -> None:
    with pytest.raises(InvalidRequest, match="give an S3 location, a TrainingInput or a FileSystemInput"):
        channels(inputs)


def test_local_files_are_uploaded_for_the_job(tmp_path: Path) -> None:
    (tmp_path / "my data").mkdir()
    local = TrainingInput(f"file://{tmp_path}/my%20data", content_type="text/csv")
    shapes = channels({"train": local, "test": "s3://b/test"})
    uploaded = upload_local(shapes, lambda path: f"s3://uploads/{Path(path).name}")
    assert uploaded[0]["DataSource"]["S3DataSource"]["S3Uri"] == "s3://uploads/my data"
    assert uploaded[0]["ContentType"] == "text/csv"
    assert uploaded[1] == shapes[1]
    # The input can be used again, when the folder has changed.
    assert local.config["DataSource"]["S3DataSource"]["S3Uri"].startswith("file://")


def test_a_local_path_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidRequest, match='there is no file or folder "nowhere/data"'):
        channels("file://nowhere/data")
