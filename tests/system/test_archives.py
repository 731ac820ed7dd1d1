"""Hostile archives on a real yard: they are refused with a reason, and nothing outside is touched."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.trainees import Trainee
from tests.system.watching import folder_of
from tests.system.yards import KINDS, Place, place_for, trainee_of
from tests.unit.instance.agent.program.test_archive import entry, folder, header, link, packed, pax, squeezed
from trainyard.testing.yard import RunningYard

SCRIPT = entry("train.py", b"print('ran')")
BOMB_BYTES = 3 << 30


@pytest.fixture(params=KINDS, scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_for(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def yard(place: Place) -> Iterator[RunningYard]:
    with place.running() as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    return trainee_of(yard).prepare()


def bomb() -> bytes:
    """Return a decompression bomb: one header, and zeros that gzip compresses by a factor of a thousand."""
    body = io.BytesIO()
    with gzip.GzipFile(fileobj=body, mode="wb", compresslevel=1) as packed_body:
        packed_body.write(header("zeros", size=b"\x80" + BOMB_BYTES.to_bytes(11, "big")))
        packed_body.write(bytes(64 << 20))
    return body.getvalue()


HOSTILE = {
    "parent": (packed(SCRIPT, entry("../../../escaped", b"x")), "which is outside it"),
    "absolute": (packed(SCRIPT, entry("/escaped", b"x")), "which is outside it"),
    "link": (packed(SCRIPT, link("out", "../../../../../..")), "is a link out of it"),
    "chain": (packed(SCRIPT, link("d", "."), link("e", "d/d/../../..")), "is a link out of it"),
    "behind": (packed(SCRIPT, link("d", "."), entry("d/escaped", b"x")), "lies behind the link"),
    "hard-link": (packed(SCRIPT, link("shadow", "/etc/shadow", tarfile.LNKTYPE)), "which is outside it"),
    "device": (packed(SCRIPT, entry("dev", type=tarfile.BLKTYPE, devmajor=8)), "is a special file"),
    "pipe": (packed(entry("train.py", type=tarfile.FIFOTYPE)), "is a special file"),
    "pax": (squeezed(pax({"path": b"../escaped"}) + header("a") + bytes(1024)), "which is outside it"),
    "sparse": (squeezed(header("a", kind=b"S") + bytes(1024)), "is a special file"),
    "long": (packed(SCRIPT, entry("x" * 300)), "too long a name"),
    "deep": (packed(SCRIPT, folder("/".join("d" * 100))), "nested too deeply"),
    "cut": (io.BytesIO(packed(SCRIPT, entry("big", os.urandom(9000))).getvalue()[:5000]), "it is cut short"),
    "no-tar": (squeezed(b"#!/bin/sh\nexit 0\n" * 100), "a header in it is damaged"),
    "no-gzip": (io.BytesIO(b"PK\x03\x04 a zip"), "it is not compressed with gzip"),
    "bomb": (io.BytesIO(bomb()), "it holds more than 2147483648 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_touches_nothing(
    name: str, place: Place, yard: RunningYard, trainee: Trainee
) -> None:
    body, reason = HOSTILE[name]
    before = surroundings(place)
    told = trainee.run(f"hostile-{name}", "", **with_code(trainee, name, body.getvalue()))
    assert told["TrainingJobStatus"] == "Failed"
    assert told["FailureReason"].startswith(f"ClientError: The code s3://data/{name}.tar.gz is refused: "), told
    assert reason in told["FailureReason"]
    assert trainee.printed(f"hostile-{name}") == []
    assert surroundings(place) == before
    assert not folder_of(yard, f"hostile-{name}").ml.exists()


@pytest.mark.flow
def test_an_archive_with_all_that_is_allowed_runs(trainee: Trainee) -> None:
    body = packed(
        folder("lib"),
        entry("lib/real.py", b"word = 'imported'"),
        link("lib/soft.py", "real.py"),
        link("hard.py", "lib/real.py", tarfile.LNKTYPE),
        entry("train.py", b"old"),
        entry("train.py", b"import hard, lib.soft\nprint(hard.word, lib.soft.word)"),
    )
    told = trainee.run("allowed", "", **with_code(trainee, "allowed", body.getvalue() + b"garbage after the end"))
    assert told["TrainingJobStatus"] == "Completed", told
    assert trainee.printed("allowed") == ["imported imported"]


def with_code(trainee: Trainee, name: str, body: bytes) -> dict[str, dict[str, str]]:
    trainee.user.client("s3").put_object(Bucket="data", Key=f"{name}.tar.gz", Body=body)
    return {
        "HyperParameters": {
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": f"s3://data/{name}.tar.gz",
        }
    }


def surroundings(place: Place) -> list[str]:
    """Return the paths where an archive could have put something: around the yard, in it, and at the root."""
    tops = [path for path in (Path("/"), place.folder, place.home) for path in path.iterdir()]
    found = [str(path) for path in tops if path.name not in ("yard.json.new", "tmp")]
    found += [str(path) for path in place.home.rglob("*") if "escaped" in path.name or "shadow" in path.name]
    return sorted(found)
