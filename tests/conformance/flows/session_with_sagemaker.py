"""A session of the sagemaker SDK after `trainyard connect`: its bucket, its role, uploads and downloads."""

import os
import tempfile
import uuid
from pathlib import Path

import boto3
import sagemaker
from sagemaker.s3 import S3Downloader, S3Uploader


def main() -> None:
    session = sagemaker.Session()
    account = boto3.client("sts").get_caller_identity()["Account"]
    assert session.account_id() == account
    bucket = session.default_bucket()
    assert bucket == f"sagemaker-{session.boto_region_name}-{account}"
    assert bucket in [each["Name"] for each in boto3.client("s3").list_buckets()["Buckets"]]
    assert sagemaker.Session().default_bucket() == bucket, "the second session finds the bucket of the first"
    assert sagemaker.get_execution_role(session).startswith(f"arn:aws:iam::{account}:role/")
    data_up_and_down(session, bucket)


def data_up_and_down(session: sagemaker.Session, bucket: str) -> None:
    prefix = f"data-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        (source / "deep").mkdir(parents=True)
        target.mkdir()
        (source / "small.csv").write_text("1,2,3\n")
        (source / "deep" / "large.bin").write_bytes(os.urandom(9 * 1024 * 1024))
        assert session.upload_data(str(source), key_prefix=prefix) == f"s3://{bucket}/{prefix}"
        listed = session.list_s3_files(bucket, prefix)
        assert sorted(listed) == [f"{prefix}/deep/large.bin", f"{prefix}/small.csv"]
        assert session.read_s3_file(bucket, f"{prefix}/small.csv") == "1,2,3\n"
        session.download_data(str(target), bucket, prefix)
        assert (target / "small.csv").read_text() == "1,2,3\n"
        assert (target / "deep" / "large.bin").read_bytes() == (source / "deep" / "large.bin").read_bytes()
    location = S3Uploader.upload_string_as_file_body("hello", f"s3://{bucket}/{prefix}/said", sagemaker_session=session)
    assert S3Downloader.read_file(location, sagemaker_session=session) == "hello"


main()
