"""How much one request may ask of the parser, by operation.

Every body that is held whole has a bound on its bytes and one on its values, because a byte costs little and a value
much: a mebibyte of `{}` takes a fifth of a second to read, a mebibyte of text one millisecond (measured 2026). Objects
of S3 are streams and have neither.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.wire.fault import Fault

if TYPE_CHECKING:
    from botocore.model import OperationModel

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """`values` counts what a document is made of: structures, lists, numbers, strings; in a form, its parameters."""

    size_bytes: int
    values: int


LONGEST_PATH = 8 * KIBIBYTE  # a key of 1,024 bytes takes 3,072
MOST_PARAMETERS = 1000  # of a query string

# CreateTrainingJob, the largest of the ordinary calls, takes 300 KiB and 2,000 values with all that SageMaker allows.
ORDINARY = BodyLimits(MEBIBYTE, 10_000)

_OTHERS = {
    # AWS takes 10,000 events of 1 MiB together; JSON may write a byte of them as three, and adds 50 bytes to each.
    ("logs", "PutLogEvents"): BodyLimits(4 * MEBIBYTE, 50_000),
    # 1,000 metrics with dimensions, values and counts; AWS takes 1 MB, which clients compress.
    ("cloudwatch", "PutMetricData"): BodyLimits(4 * MEBIBYTE, 100_000),
    # Up to ten definitions of training jobs, each with hyperparameters of its own.
    ("sagemaker", "CreateHyperParameterTuningJob"): BodyLimits(4 * MEBIBYTE, 20_000),
    # 10,000 parts, each with its number, its ETag and a checksum.
    ("s3", "CompleteMultipartUpload"): BodyLimits(4 * MEBIBYTE, 100_000),
    # 1,000 keys of 1,024 bytes, of which XML may write each as six.
    ("s3", "DeleteObjects"): BodyLimits(8 * MEBIBYTE, 20_000),
}


def limits_of(operation: "OperationModel") -> BodyLimits:
    return _OTHERS.get((operation.service_model.service_name, operation.name), ORDINARY)


def check_address(path: str, query: str) -> None:
    """Refuse an address that takes longer to read than any that a client means, before it is known who sent it."""
    if len(path) > LONGEST_PATH:
        raise Fault("InvalidURI", f"The path of this request has {len(path)} bytes; {LONGEST_PATH} are accepted.")
    if query.count("&") >= MOST_PARAMETERS:
        raise Fault("InvalidURI", f"The query of this request has more than {MOST_PARAMETERS} parameters.")


def too_large(operation: "OperationModel | None", limit_bytes: int, *, size_bytes: int | None = None) -> Fault:
    """The refusal of a body that is longer than its operation takes; before the operation is known it has no name."""
    whose = f"The body of {operation.name}" if operation is not None else "The body of this request"
    has = f"has {size_bytes} bytes" if size_bytes is not None else f"is longer than {limit_bytes} bytes"
    message = f"{whose} {has}; at most {limit_bytes} are accepted. Split the call into smaller ones."
    if operation is not None and operation.service_model.service_name == "s3":
        return Fault("MaxMessageLengthExceeded", message, members={"MaxMessageLengthBytes": str(limit_bytes)})
    return Fault("RequestEntityTooLarge", message, status=413)


def too_many_values(most: int) -> ValueError:
    return ValueError(f"The body has more than {most} values, which is the most that this operation takes")
