"""Pipe channels with estimators: plain, wrapped, compressed, shuffled, sharded, and from an augmented manifest.

Its argument is the package of the estimators: sagemaker or trainyard.
"""

import gzip
import importlib
import json
import struct
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

estimating: Any = importlib.import_module("estimating")
TELL, digest = estimating.TELL, estimating.digest

SET = {f"{number:02}.bin": bytes([number + 1]) * (number * 3001) for number in range(12)}
SET |= {"deep/last.csv": b"1,2\n"}
MAGIC = 0xCED7230A
# Prints the first byte of each record, which identifies its object, over two epochs.
ORDER = """
import json, os, pathlib
from trainyard.data import RecordIODataset

told = [[record[0] for record in RecordIODataset("train")] for epoch in range(2)]
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "order.json").write_text(json.dumps(told))
"""
RECORDS = """
import hashlib, json, os, pathlib
from trainyard.data import RecordIODataset

told = [hashlib.sha256(record).hexdigest() for record in RecordIODataset("train")]
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], os.environ["SM_CURRENT_HOST"] + ".json").write_text(json.dumps(told))
"""


def main(package: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        location = kit.put(SET)
        is_read(kit, location)
        is_shuffled(kit, {f"{number:02}": bytes([number]) for number in range(20)})
        is_shared_out(kit, location)
        is_labelled(kit, location)


def is_read(kit: Any, location: str) -> None:
    """Each channel is read twice: there is one FIFO per epoch."""
    packed = kit.put({name: gzip.compress(body) for name, body in SET.items()})
    make = kit.of("inputs", "TrainingInput")
    job = kit.estimator(TELL, input_mode="Pipe")
    job.fit(
        {
            "plain": location,
            "wrapped": make(location, record_wrapping="RecordIO", input_mode="Pipe"),
            "packed": make(packed, compression="Gzip", content_type="application/octet-stream"),
            "both": make(packed, compression="Gzip", record_wrapping="RecordIO"),
        },
        logs=False,
    )
    bodies = [SET[name] for name in sorted(SET)]
    plain, wrapped = digest(b"".join(bodies)), digest(recordio(bodies))
    assert kit.told(job) == [
        {"plain": [plain] * 2, "wrapped": [wrapped] * 2, "packed": [plain] * 2, "both": [wrapped] * 2}
    ]


def is_shuffled(kit: Any, bodies: dict[str, bytes]) -> None:
    make, seed = kit.of("inputs", "TrainingInput"), kit.of("inputs", "ShuffleConfig")(17)
    location = kit.put(bodies)
    orders = []
    for _ in range(2):
        job = kit.estimator(ORDER)
        job.fit(
            {"train": make(location, record_wrapping="RecordIO", input_mode="Pipe", shuffle_config=seed)}, logs=False
        )
        (told,) = kit.told(job)
        orders.append(told)
    (first, second), again = orders
    assert sorted(first) == sorted(second) == list(range(20))
    assert len({tuple(first), tuple(second), tuple(range(20))}) == 3, (first, second)
    assert again == [first, second], "a seed gives the same orders"


def is_shared_out(kit: Any, location: str) -> None:
    given = kit.of("inputs", "TrainingInput")(
        location, distribution="ShardedByS3Key", record_wrapping="RecordIO", input_mode="Pipe"
    )
    job = kit.estimator(RECORDS, instance_count=3)
    job.fit({"train": given}, logs=False)
    shares = kit.told(job)
    assert sorted(map(len, shares)) == [4, 4, 5]
    assert sorted(found for share in shares for found in share) == sorted(map(digest, SET.values()))


def is_labelled(kit: Any, location: str) -> None:
    """Every attribute of every line is a record: an object if its name ends in -ref, otherwise JSON."""
    lines = [{"source-ref": f"{location}/{name}", "label": number} for number, name in enumerate(SET)]
    manifest = kit.put({"all.manifest": "".join(f"{json.dumps(line)}\n" for line in lines).encode()})
    given = kit.of("inputs", "TrainingInput")(
        f"{manifest}/all.manifest",
        s3_data_type="AugmentedManifestFile",
        attribute_names=["source-ref", "label"],
        record_wrapping="RecordIO",
        input_mode="Pipe",
    )
    job = kit.estimator(RECORDS)
    job.fit({"train": given}, logs=False)
    expected = [digest(part) for number, body in enumerate(SET.values()) for part in (body, str(number).encode())]
    assert kit.told(job) == [expected]


def recordio(bodies: Iterable[bytes]) -> bytes:
    """Return records in the RecordIO format: a magic number, the length, and the body padded to four bytes."""
    return b"".join(struct.pack("<II", MAGIC, len(body)) + body + bytes(-len(body) % 4) for body in bodies)


main(sys.argv[1])
