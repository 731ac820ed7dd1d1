"""Exceptions as scripts catch and read them."""

import pytest
from smdebug import exceptions, modes


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("SMDebugTypeError", TypeError),
        ("SMDebugRuntimeError", RuntimeError),
        ("SMDebugNotImplementedError", NotImplementedError),
        ("SMDebugValueError", ValueError),
    ],
)
def test_errors_are_also_pythons_built_in_ones(name: str, builtin: type[Exception]) -> None:
    assert issubclass(getattr(exceptions, name), (exceptions.SMDebugError, builtin))
    assert issubclass(getattr(exceptions, name), builtin)


@pytest.mark.parametrize(
    ("error", "fields", "sentence"),
    [
        (
            exceptions.StepUnavailable(3, modes.EVAL),
            {"step": 3, "mode": modes.EVAL},
            "Step 3 of mode EVAL was not saved.",
        ),
        (exceptions.StepNotYetAvailable(3, modes.GLOBAL), {"step": 3}, "Step 3 of mode GLOBAL is not available yet."),
        (exceptions.NoMoreData(9, modes.TRAIN, 4), {"last_step": 4}, "ended at step 4 of mode TRAIN, before step 9"),
        (exceptions.TensorUnavailable("w"), {"tname": "w"}, 'No tensor "w" was saved.'),
        (
            exceptions.TensorUnavailableForStep("w", 3, modes.TRAIN, has_reductions=True),
            {"tname": "w", "step": 3, "has_reductions": True},
            "use reduction_value",
        ),
        (exceptions.ShapeUnavailableForStep("w", 3), {"mode": modes.GLOBAL}, 'shape of "w"'),
        (exceptions.InvalidWorker("worker_7"), {"worker": "worker_7"}, "worker_7"),
        (exceptions.InvalidCollectionConfiguration("mine"), {"c_name": "mine"}, "include_regex"),
        (exceptions.MissingCollectionFiles(), {}, "collections"),
        (exceptions.IndexReaderException("torn"), {"message": "torn"}, "torn"),
        (exceptions.NoMoreProfilerData(1.5), {"timestamp": 1.5}, "1.5"),
        (exceptions.RuleEvaluationConditionMet("R", 3), {"rule_name": "R", "end_of_rule": False}, "rule R is met"),
        (exceptions.InsufficientInformationForRuleInvocation("R", "no loss"), {"rule_name": "R"}, "no loss"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_error_carries_what_was_requested(error: Exception, fields: dict[str, object], sentence: str) -> None:
    assert isinstance(error, exceptions.SMDebugError)
    assert {name: getattr(error, name) for name in fields} == fields
    assert sentence in str(error)
