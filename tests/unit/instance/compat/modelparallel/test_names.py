"""The names that exist, and the errors for those that do not."""

from collections.abc import Callable
from types import ModuleType

import pytest


def test_an_unknown_name_is_reported_with_the_known_ones(import_compat: Callable[[str], ModuleType]) -> None:
    smp = import_compat("smdistributed.modelparallel.torch")
    with pytest.raises(AttributeError, match=r"Trainyard's smp has no gather; it has .*DistributedModel, "):
        _ = smp.gather
    with pytest.raises(AttributeError, match=r"smp does not support from_hf: .* mark theirs with tensor_parallelism"):
        _ = smp.from_hf
    with pytest.raises(AttributeError, match=r"smp.nn has no DistributedTransformer; it has DistributedLinear"):
        _ = smp.nn.DistributedTransformer


def test_every_exported_name_exists(import_compat: Callable[[str], ModuleType]) -> None:
    smp = import_compat("smdistributed.modelparallel.torch")
    assert [name for name in smp.__all__ if not hasattr(smp, name)] == []


def test_ranks_are_available_after_init(import_compat: Callable[[str], ModuleType]) -> None:
    smp = import_compat("smdistributed.modelparallel.torch")
    assert not smp.is_initialized()
    with pytest.raises(RuntimeError, match=r"call smp.init\(\) first"):
        smp.rank()


def test_tensorflow_is_unsupported(import_compat: Callable[[str], ModuleType]) -> None:
    with pytest.raises(ImportError, match="supports only PyTorch"):
        import_compat("smdistributed.modelparallel.tensorflow")
