"""Stores ended trials as a study of Optuna. Its argument is the storage; standard input has the ranges and trials."""

import json
import sys
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

_STATES = {"Completed": TrialState.COMPLETE, "Stopped": TrialState.PRUNED, "Failed": TrialState.FAIL}


def main(storage: str) -> None:
    told = json.load(sys.stdin)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {each["name"]: _distribution(each) for each in told["ranges"]}
    study = optuna.create_study(storage=storage, study_name="study")
    for each in told["trials"]:
        state = _STATES[each["status"]]
        study.add_trial(
            create_trial(
                state=state,
                value=each["objective"] if state is TrialState.COMPLETE else None,
                params=each["values"],
                distributions=distributions,
                intermediate_values=dict(enumerate(each["curve"], 1)),
            )
        )


def _distribution(told: dict[str, Any]) -> BaseDistribution:
    if told["kind"] == "Categorical":
        return CategoricalDistribution(told["values"])
    if told["kind"] == "Integer":
        return IntDistribution(int(told["low"]), int(told["high"]))
    return FloatDistribution(told["low"], told["high"], log=told["is_logarithmic"])


main(sys.argv[1])
