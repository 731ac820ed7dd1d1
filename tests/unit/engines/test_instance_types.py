import botocore.session
import pytest

from trainyard.engines.instance_types import cpus_of, shipped_types


def test_every_type_that_clients_can_name_is_shipped_and_no_other() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")

    assert {f"ml.{name}" for name, _ in shipped_types()} == set(model.shape_for("TrainingInstanceType").enum)


def test_no_type_is_written_twice() -> None:
    names = [name for name, _ in shipped_types()]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("size", "cpus"),
    [("medium", 2), ("large", 2), ("xlarge", 4), ("2xlarge", 8), ("96xlarge", 384), ("metal", None), ("xxlarge", None)],
)
def test_the_name_of_a_size_says_how_many_cpus_it_has(size: str, cpus: int | None) -> None:
    assert cpus_of(size) == cpus
