"""The configuration of model parallelism."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def configuration(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("smdistributed.modelparallel.torch.configuration")


def test_the_parameters_of_the_public_example_are_understood(configuration: Any) -> None:
    given = {
        "partitions": 2,
        "microbatches": 4,
        "placement_strategy": "spread",
        "pipeline": "simple",
        "optimize": "speed",
        "ddp": True,
        "auto_partition": False,
        "default_partition": 1,
    }
    found = configuration.load_configuration({"SM_HP_MP_PARAMETERS": json.dumps(given)})
    assert found == configuration.Configuration(2, 1, 4, "simple", "TPD", auto_partition=False, default_partition=1)


def test_without_parameters_nothing_is_split(configuration: Any) -> None:
    assert configuration.load_configuration({}) == configuration.Configuration()


def test_either_name_of_the_number_of_partitions_counts(configuration: Any) -> None:
    assert configuration.parse_parameters({"pipeline_parallel_degree": 3}).pipeline_degree == 3
    assert configuration.parse_parameters({"pipeline_parallel_degree": 3, "partitions": 3}).pipeline_degree == 3
    with pytest.raises(ValueError, match="two names for one number, but differ"):
        configuration.parse_parameters({"pipeline_parallel_degree": 3, "partitions": 2})


def test_an_unknown_parameter_is_warned_about_by_its_name(configuration: Any) -> None:
    with pytest.warns(UserWarning, match="no parameter colour, shape; it has auto_partition,"):
        assert configuration.parse_parameters({"colour": "red", "shape": "round"}) == configuration.Configuration()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"partitions": 0}, "partitions is 0; it must be 1 or more"),
        ({"microbatches": "many"}, "microbatches is 'many'"),
        ({"pipeline": "round"}, "pipeline is 'round'; it must be interleaved or simple"),
        ({"placement_strategy": "DPX"}, "placement_strategy is 'DPX'; it must be cluster, spread, or the letters"),
        ({"auto_partition": "perhaps"}, "auto_partition is 'perhaps'; it must be true or false"),
        ({"partitions": 2, "default_partition": 2}, "default_partition is 2; there are 2 partitions"),
        ({"default_partition": -1}, "default_partition is -1"),
    ],
)
def test_an_invalid_parameter_is_reported(configuration: Any, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        configuration.parse_parameters(given)


@pytest.mark.parametrize("name", ["fp16", "bf16", "shard_optimizer_state", "offload_activations", "horovod"])
def test_unsupported_parameters_are_refused(configuration: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"does not support {name}; remove it"):
        configuration.parse_parameters({name: True})
    assert configuration.parse_parameters({name: False}) == configuration.Configuration()


def test_sharded_data_parallelism_is_refused_where_it_would_shard(configuration: Any) -> None:
    with pytest.raises(ValueError, match="does not support sharded_data_parallel_degree"):
        configuration.parse_parameters({"sharded_data_parallel_degree": 4})
    assert configuration.parse_parameters({"sharded_data_parallel_degree": 1}) == configuration.Configuration()


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_hyperparameter_that_is_not_an_object_is_refused(configuration: Any, text: str) -> None:
    with pytest.raises(ValueError, match="SM_HP_MP_PARAMETERS is "):
        configuration.load_configuration({"SM_HP_MP_PARAMETERS": text})
