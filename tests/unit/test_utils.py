import re
import tarfile
from pathlib import Path

import pytest

from trainyard.utils import (
    base_from_name,
    base_name_from_image,
    create_tar_file,
    name_from_base,
    name_from_image,
    unique_name_from_base,
)

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0"


def test_generated_names_have_a_base_and_the_time() -> None:
    assert re.fullmatch(r"mnist-\d{4}(-\d\d){5}-\d{3}", name_from_base("mnist"))
    assert re.fullmatch(r"mnist-\d{6}-\d{4}", name_from_base("mnist", short=True))
    assert re.fullmatch(r"mnist-\d{10}-[0-9a-f]{4}", unique_name_from_base("mnist"))
    assert name_from_image(IMAGE).startswith("pytorch-training-")


def test_a_base_that_is_too_long_is_cut() -> None:
    assert len(name_from_base("x" * 80)) == len(unique_name_from_base("x" * 80)) == 63
    assert len(name_from_base("x" * 80, max_length=32)) == 32


@pytest.mark.parametrize(
    ("name", "base"), [("a-b-2020-01-01-01-01-01-123", "a-b"), ("a-200101-0101", "a"), ("plain", "plain")]
)
def test_the_base_of_a_generated_name_is_found_again(name: str, base: str) -> None:
    assert base_from_name(name) == base


def test_the_base_name_of_an_image_is_its_repository() -> None:
    assert base_name_from_image(IMAGE) == "pytorch-training"
    assert base_name_from_image("", "job") == "job"


def test_an_archive_has_files_without_their_folders(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/a.txt").write_text("a")
    with tarfile.open(create_tar_file([str(tmp_path / "deep/a.txt")], str(tmp_path / "out.tar.gz"))) as archive:
        assert archive.getnames() == ["a.txt"]
