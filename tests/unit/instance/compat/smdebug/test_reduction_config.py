"""What a script saves of a tensor, and the resulting numbers."""

import numpy as np
import pytest
from smdebug import ReductionConfig
from smdebug.core.reductions import get_numpy_reduction, get_reduction_tensor_name, reverse_reduction_tensor_name
from smdebug.exceptions import SMDebugValueError


def test_the_words_of_a_configuration_are_sorted_into_four_lists() -> None:
    config = ReductionConfig.from_dict(
        {"reductions": "min, max,abs_mean,l2_norm,abs_l1_norm", "save_raw_tensor": "True"}
    )
    assert config == ReductionConfig(["min", "max"], ["mean"], ["l2"], ["l1"], save_raw_tensor=True)
    assert config.save_shape is False
    assert ReductionConfig.from_dict(None) is None


def test_json_round_trip() -> None:
    config = ReductionConfig(["std"], ["variance", "prod"], ["l1"], ["l2"], save_shape=True)
    assert ReductionConfig.from_json(config.to_json()) == config
    assert config.to_json_dict()["reductions"] == "std,l1_norm,abs_variance,abs_prod,abs_l2_norm"


@pytest.mark.parametrize(
    "arguments",
    [{"reductions": ["median"]}, {"norms": ["l3"]}, {"abs_reductions": ["l1"]}, {"save_raw_tensor": 1}],
)
def test_unknown_words_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(SMDebugValueError):
        ReductionConfig(**arguments)


def test_every_reduction_is_that_of_numpy() -> None:
    values = np.random.default_rng(3).normal(size=(4, 5))
    wanted = {
        "min": values.min(),
        "max": values.max(),
        "mean": values.mean(),
        "std": values.std(),
        "variance": values.var(),
        "sum": values.sum(),
        "prod": values.prod(),
        "l1": np.abs(values).sum(),
        "l2": np.sqrt((values**2).sum()),
    }
    for name, value in wanted.items():
        assert get_numpy_reduction(name, values) == pytest.approx(value)
    assert get_numpy_reduction("mean", values, abs=True) == pytest.approx(np.abs(values).mean())
    with pytest.raises(SMDebugValueError, match='"median" is not one of'):
        get_numpy_reduction("median", values)


def test_a_reduction_is_named_for_its_tensor() -> None:
    name = get_reduction_tensor_name("gradient/Net_fc.weight:0", "l2", True)
    assert name == "smdebug/reductions/abs_l2/gradient/Net_fc.weight"
    assert reverse_reduction_tensor_name(name) == ("gradient/Net_fc.weight", "l2", True)
