"""Files and objects on S3, under the names of the `sagemaker` SDK."""

from collections.abc import Callable
from io import BytesIO
from urllib.parse import urlsplit

from trainyard._sdk.storage.transfers import ExtraArguments
from trainyard.foundation.errors import InvalidRequest
from trainyard.session import Session

__all__ = ["S3Downloader", "S3Uploader", "determine_bucket_and_prefix", "is_s3_url", "parse_s3_url", "s3_path_join"]


class S3Uploader:
    """Uploads files, folders and text. Every method creates a session if it gets none."""

    @staticmethod
    def upload(
        local_path: str,
        desired_s3_uri: str,
        kms_key: str | None = None,
        sagemaker_session: Session | None = None,
        callback: Callable[[int], None] | None = None,
    ) -> str:
        """Upload a file, or everything in a folder, and return the S3 location.

        Args:
            local_path: The file or folder.
            desired_s3_uri: The S3 location under which to store it; a file keeps its name.
            kms_key: ID of the KMS key to encrypt with.
            sagemaker_session: The session to use. Default: a new one.
            callback: Function that is called with the number of bytes sent, part by part.
        """
        bucket, prefix = parse_s3_url(desired_s3_uri)
        session = sagemaker_session or Session()
        return session.upload_data(local_path, bucket, prefix, callback=callback, extra_args=_encryption(kms_key))

    @staticmethod
    def upload_bytes(
        b: bytes | BytesIO, s3_uri: str, kms_key: str | None = None, sagemaker_session: Session | None = None
    ) -> str:
        """Write bytes to an object and return its S3 location.

        Args:
            b: The bytes.
            s3_uri: The S3 location of the object.
            kms_key: ID of the KMS key to encrypt with.
            sagemaker_session: The session to use. Default: a new one.
        """
        bucket, key = parse_s3_url(s3_uri)
        body = b.getvalue() if isinstance(b, BytesIO) else b
        session = sagemaker_session or Session()
        session.api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=body, **_encryption(kms_key))
        return s3_uri

    @staticmethod
    def upload_string_as_file_body(
        body: str, desired_s3_uri: str, kms_key: str | None = None, sagemaker_session: Session | None = None
    ) -> str:
        """Write a string to an object and return its S3 location.

        Args:
            body: The text.
            desired_s3_uri: The S3 location of the object.
            kms_key: ID of the KMS key to encrypt with.
            sagemaker_session: The session to use. Default: a new one.
        """
        return S3Uploader.upload_bytes(body.encode(), desired_s3_uri, kms_key, sagemaker_session)


class S3Downloader:
    """Downloads, reads and lists objects. Every method creates a session if it gets none."""

    @staticmethod
    def download(
        s3_uri: str, local_path: str, kms_key: str | None = None, sagemaker_session: Session | None = None
    ) -> list[str]:
        """Download an object, or all objects with a prefix, into a folder, and return the paths of the files.

        Args:
            s3_uri: The S3 location of an object or a prefix.
            local_path: The folder.
            kms_key: Not needed: the yard decrypts with the key that an object names.
            sagemaker_session: The session to use. Default: a new one.
        """
        del kms_key
        bucket, prefix = parse_s3_url(s3_uri)
        return (sagemaker_session or Session()).download_data(local_path, bucket, prefix)

    @staticmethod
    def list(s3_uri: str, sagemaker_session: Session | None = None) -> list[str]:
        """Return the S3 locations of all objects with a prefix.

        Args:
            s3_uri: The S3 location of the prefix.
            sagemaker_session: The session to use. Default: a new one.
        """
        bucket, prefix = parse_s3_url(s3_uri)
        keys = (sagemaker_session or Session()).list_s3_files(bucket, prefix)
        return [f"s3://{bucket}/{key}" for key in keys]

    @staticmethod
    def read_bytes(s3_uri: str, sagemaker_session: Session | None = None) -> bytes:
        """Return the content of an object.

        Args:
            s3_uri: The S3 location of the object.
            sagemaker_session: The session to use. Default: a new one.
        """
        bucket, key = parse_s3_url(s3_uri)
        body: bytes = (sagemaker_session or Session()).api.call("s3", "GetObject", Bucket=bucket, Key=key)["Body"]
        return body

    @staticmethod
    def read_file(s3_uri: str, sagemaker_session: Session | None = None) -> str:
        """Return the content of an object as text.

        Args:
            s3_uri: The S3 location of the object.
            sagemaker_session: The session to use. Default: a new one.
        """
        return S3Downloader.read_bytes(s3_uri, sagemaker_session).decode()


def parse_s3_url(url: str) -> tuple[str, str]:
    """Return the bucket and the key of an S3 location.

    Args:
        url: The location, such as `s3://bucket/key`.

    Raises:
        InvalidRequest: The text is not an S3 location.
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not is_s3_url(url) or not bucket:
        raise InvalidRequest(f'"{url}" is not a location on S3; write it like s3://bucket/key.')
    return bucket, key.lstrip("/")


def is_s3_url(url: str) -> bool:
    """Return whether a text is an S3 location.

    Args:
        url: The text.
    """
    return urlsplit(url).scheme == "s3"


def s3_path_join(*args: str, with_end_slash: bool = False) -> str:
    """Join parts of an S3 location, or of a key, with one slash between them. Empty parts are skipped.

    Args:
        *args: The parts; the first may begin with `s3://`.
        with_end_slash: Whether the result ends with a slash.
    """
    parts = [part for part in args if part]
    scheme = "s3://" if parts and parts[0].startswith("s3://") else ""
    path = "/".join(part.removeprefix(scheme if number == 0 else "").strip("/") for number, part in enumerate(parts))
    joined = scheme + "/".join(part for part in path.split("/") if part)
    return f"{joined}/" if with_end_slash and joined else joined


def determine_bucket_and_prefix(
    bucket: str | None = None, key_prefix: str | None = None, sagemaker_session: Session | None = None
) -> tuple[str, str]:
    """Return a bucket and a prefix: those given, or those of the session if no bucket is given.

    Args:
        bucket: The bucket. Default: the default bucket of the session, with its prefix before `key_prefix`.
        key_prefix: The prefix.
        sagemaker_session: The session to use. Default: a new one.
    """
    if bucket:
        return bucket, key_prefix or ""
    session = sagemaker_session or Session()
    return session.default_bucket(), s3_path_join(session.default_bucket_prefix or "", key_prefix or "")


def _encryption(kms_key: str | None) -> ExtraArguments:
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
