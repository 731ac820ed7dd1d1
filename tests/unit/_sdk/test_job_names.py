from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from trainyard._sdk.job_names import as_base, base_of, base_of_image, create_named, create_study_named, new_name
from trainyard.wire.client import CallFailed

NOON = datetime(2026, 11, 15, 12, 0, 7, 89_999, UTC)


def test_a_name_is_the_base_and_the_time_to_the_millisecond() -> None:
    assert new_name("mnist", NOON) == "mnist-2026-11-15-12-00-07-089"


def test_a_name_is_never_longer_than_the_service_takes() -> None:
    assert len(new_name("x" * 100, NOON)) == 63


@pytest.mark.parametrize("base", ["mnist", "mnist-2", "x-2026-11-15"])
def test_the_base_is_found_again(base: str) -> None:
    assert base_of(new_name(base, NOON)) == base


def test_a_name_without_time_is_its_own_base() -> None:
    assert base_of("my-job") == "my-job"


@pytest.mark.parametrize(
    "image",
    [
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0-cpu",
        "pytorch-training",
        "a/pytorch-training@sha256:1",
    ],
)
def test_an_image_is_named_by_its_repository(image: str) -> None:
    assert base_of_image(image) == "pytorch-training"


@pytest.mark.parametrize(("text", "base"), [("my_project-task 1", "my-project-task-1"), ("__", "job"), ("a--b", "a-b")])
def test_any_text_becomes_part_of_a_name(text: str, base: str) -> None:
    assert as_base(text) == base


@pytest.mark.parametrize("create", [create_named, create_study_named])
def test_a_name_that_another_client_took_at_the_same_moment_is_passed_over(
    create: Callable[[str, Callable[[str], object]], str],
) -> None:
    taken: set[str] = set()

    def take(name: str) -> None:
        if not taken or name in taken:
            taken.add(name)
            raise CallFailed("ResourceInUse", "It exists.", status=400)
        taken.add(name)

    name = create("mnist", take)
    assert name.startswith("mnist-")
    assert len(taken) == 2


def test_other_errors_are_not_retried() -> None:
    tried: list[str] = []

    def fail(name: str) -> None:
        tried.append(name)
        raise CallFailed("ValidationException", "No.", status=400)

    with pytest.raises(CallFailed):
        create_named("mnist", fail)
    assert len(tried) == 1


def test_a_name_that_is_always_taken_is_said_to_be() -> None:
    def fail(name: str) -> None:
        raise CallFailed("ResourceInUse", f"{name} exists.", status=400)

    with pytest.raises(CallFailed, match="exists"):
        create_named("mnist", fail)
