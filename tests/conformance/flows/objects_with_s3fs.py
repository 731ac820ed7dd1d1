"""A bucket as a file system, through s3fs and aiobotocore."""

import os
import uuid

import s3fs


def main() -> None:
    files = s3fs.S3FileSystem()
    bucket = f"s3fs-{uuid.uuid4().hex[:12]}"
    files.mkdir(bucket)
    assert files.exists(bucket)
    reads_what_it_wrote(files, bucket)
    lists_and_walks(files, bucket)
    copies_moves_removes(files, bucket)
    files.rm(bucket, recursive=True)
    files.invalidate_cache()
    assert not files.exists(bucket)


def reads_what_it_wrote(files: s3fs.S3FileSystem, bucket: str) -> None:
    body = os.urandom(12 * 1024 * 1024)
    with files.open(f"{bucket}/folder/large.bin", "wb", block_size=5 * 1024 * 1024) as file:
        file.write(body)
    with files.open(f"{bucket}/folder/large.bin", "rb") as file:
        file.seek(6_000_000)
        assert file.read(1000) == body[6_000_000:6_001_000]
    assert files.cat(f"{bucket}/folder/large.bin") == body
    files.pipe({f"{bucket}/folder/{number}": str(number).encode() for number in range(20)})
    assert files.cat_ranges([f"{bucket}/folder/7"], [0], [1]) == [b"7"]
    assert files.info(f"{bucket}/folder/large.bin")["size"] == len(body)


def lists_and_walks(files: s3fs.S3FileSystem, bucket: str) -> None:
    files.invalidate_cache()
    assert len(files.ls(f"{bucket}/folder")) == 21
    assert files.glob(f"{bucket}/folder/1?") == [f"{bucket}/folder/1{digit}" for digit in range(10)]
    assert [name for name, _, _ in files.walk(bucket)] == [bucket, f"{bucket}/folder"]
    assert files.isdir(f"{bucket}/folder")
    assert not files.exists(f"{bucket}/nothing")


def copies_moves_removes(files: s3fs.S3FileSystem, bucket: str) -> None:
    files.copy(f"{bucket}/folder/3", f"{bucket}/copy")
    assert files.cat(f"{bucket}/copy") == b"3"
    files.mv(f"{bucket}/copy", f"{bucket}/moved")
    assert not files.exists(f"{bucket}/copy")
    assert files.cat(f"{bucket}/moved") == b"3"
    files.rm([f"{bucket}/folder/{number}" for number in range(20)])
    files.invalidate_cache()
    assert files.ls(f"{bucket}/folder") == [f"{bucket}/folder/large.bin"]


main()
