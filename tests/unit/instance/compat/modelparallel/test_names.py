"""What the stand-in has, and what it says of what it has not."""

from collections.abc import Callable
from types import ModuleType

import pytest


def test_a_name_that_is_not_there_is_told_with_those_that_are(stand_in: Callable[[str], ModuleType]) -> None:
    smp = stand_in("smdistributed.modelparallel.torch")
    with pytest.raises(AttributeError, match=r"smp has no gather in Trainyard's stand-in; it has .*DistributedModel, "):
        _ = smp.gather
    with pytest.raises(AttributeError, match=r"smp.from_hf is not served .* mark theirs with tensor_parallelism"):
        _ = smp.from_hf
    with pytest.raises(AttributeError, match=r"smp.nn has no DistributedTransformer .* it has DistributedLinear"):
        _ = smp.nn.DistributedTransformer


def test_what_is_exported_is_there(stand_in: Callable[[str], ModuleType]) -> None:
    smp = stand_in("smdistributed.modelparallel.torch")
    assert [name for name in smp.__all__ if not hasattr(smp, name)] == []


def test_ranks_are_asked_for_after_init(stand_in: Callable[[str], ModuleType]) -> None:
    smp = stand_in("smdistributed.modelparallel.torch")
    assert not smp.is_initialized()
    with pytest.raises(RuntimeError, match=r"call smp.init\(\) first"):
        smp.rank()


def test_there_is_no_part_for_tensorflow(stand_in: Callable[[str], ModuleType]) -> None:
    with pytest.raises(ImportError, match="speaks for PyTorch alone"):
        stand_in("smdistributed.modelparallel.tensorflow")
