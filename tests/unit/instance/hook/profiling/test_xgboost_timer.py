import json
from pathlib import Path

import pytest

from tests.unit.instance.hook.profiling.profiled_program import run_program, total_ms
from trainyard.formats.profiles.contract import CHANGES_VARIABLE, STEPS_VARIABLE, StepPhase

pytest.importorskip("xgboost")

DATA = """
    import numpy, time, xgboost

    numbers = numpy.random.default_rng(1)
    data = xgboost.DMatrix(numbers.random((500, 8)), numbers.integers(2, size=500))
    parameters = {"objective": "binary:logistic", "nthread": 1}

    def loss(predictions, data):
        time.sleep(0.01)
        return predictions - data.get_label(), numpy.ones(len(predictions))
"""


def test_each_round_is_a_step_and_each_of_a_cross_validation_too(tmp_path: Path) -> None:
    run = run_program(
        tmp_path,
        DATA
        + """
    booster = xgboost.train(parameters, data, 10, evals=[(data, "train")], obj=loss, verbose_eval=False)
    booster.save_raw()
    for number in range(5):
        booster.update(data, number)
    xgboost.cv(parameters, data, 4, nfold=3)
    xgboost.XGBClassifier(n_estimators=6).fit(numbers.random((50, 3)), numbers.integers(2, size=50))
    """,
        framework="xgboost",
    )
    assert (run.code, run.notes) == (0, []), run.output
    assert len(run.steps) == 10 + 5 + 4 + 6
    assert all(step.phases_ns[StepPhase.BACKWARD] for step in run.steps)
    # The objective of the program is its own code.
    assert total_ms(run.steps[:10], StepPhase.OTHER) >= 10 * 10
    assert total_ms(run.steps[:10], StepPhase.FORWARD) > 0
    facts = run.facts
    assert (facts["framework"], facts["device"], facts["threads"], facts["samples_per_step"]) == (
        "xgboost",
        "cpu",
        1,
        500,
    )


def test_a_trial_of_a_booster_has_its_threads_and_ends_after_its_rounds(tmp_path: Path) -> None:
    run = run_program(
        tmp_path,
        DATA + '    xgboost.train(parameters, data, 1_000_000)\n    print("never")\n',
        framework="xgboost",
        environment={STEPS_VARIABLE: "20", CHANGES_VARIABLE: json.dumps({"threads": "2", "batch_size": "8"})},
    )
    assert (run.code, run.output, len(run.steps)) == (0, "", 20)
    assert (run.facts["threads"], run.facts["changes"]) == (2, {"threads": "2"})
    assert run.notes == ["The trial did not change batch_size: the program has nothing that it applies to."]
