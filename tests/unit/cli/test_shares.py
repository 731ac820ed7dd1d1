from typing import Any

import pytest

from trainyard.cli.shares import share_text, shares_text

SHARE: dict[str, Any] = {"Instance": "algo-1", "InstanceType": "ml.m5.large", "Cpus": 2.0, "MemoryBytes": 4 * 1024**3}


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (SHARE, "2 cores, 4.0 GiB"),
        (SHARE | {"Cpus": 1.0, "Gpus": [0]}, "1 core, 4.0 GiB, GPU 0"),
        (SHARE | {"Cpus": 0.5, "Gpus": [0, 3]}, "0.5 cores, 4.0 GiB, GPUs 0, 3"),
        ({"Instance": "algo-1"}, "not limited"),
    ],
)
def test_a_share_is_told_as_far_as_it_is_limited(share: dict[str, Any], text: str) -> None:
    assert share_text(share) == text


def test_equal_shares_are_told_once() -> None:
    assert shares_text([SHARE, SHARE | {"Instance": "algo-2"}]) == ["2 cores, 4.0 GiB, each of 2"]
    assert shares_text([SHARE]) == ["2 cores, 4.0 GiB"]
    assert shares_text([]) == []


def test_unequal_shares_are_told_one_by_one() -> None:
    other = SHARE | {"Instance": "algo-2", "Cpus": 1.0}
    assert shares_text([SHARE, other]) == ["algo-1  2 cores, 4.0 GiB", "algo-2  1 core, 4.0 GiB"]
