"""ListTrials, ReadTrialCurves, ExplainNextTrial and SurveyTuningJob: what a search has tried, and what that shows."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.jobs.tuning import StrategyKind, TuningJob, TuningTrial
from trainyard.insight.tuning.completion import measured_value
from trainyard.insight.tuning.contract import MIN_FITTED_TRIALS
from trainyard.insight.tuning.hyperband import Hyperband
from trainyard.server.control.tuning.advisor import ProcessAnalyst
from trainyard.server.control.tuning.contract import Question
from trainyard.server.control.tuning.trial_curves import ReducedCurve, reduce_curve
from trainyard.server.control.tuning.warm_start import load_parents
from trainyard.server.jobs.trial_tables import TrialTable
from trainyard.server.jobs.tuning import job_of
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.description import objective_of
from trainyard.server.services.sagemaker.tuning.lifecycle import load_tuning_job

_TRIALS, _POINTS = 1000, 100


def list_trials(call: Call, shape: Shape) -> Shape:
    """List the trials of a tuning job, or those that changed since an earlier answer."""
    tuning_job = load_tuning_job(call, shape)
    job, table = job_of(tuning_job), _read_table(call, tuning_job)
    since = _parse_cursor(shape, table.id)
    changed = sorted((each for each in table.trials if each.change > since), key=lambda each: each.change)
    page = changed[: shape.get("MaxResults", _TRIALS)]
    hyperband = _hyperband(job)
    return {
        "Trials": [_trial(each.trial, hyperband) for each in page],
        "Cursor": f"{table.id}.{page[-1].change if page else since}",
        "HasMore": len(page) < len(changed),
        "TrialCount": len(table.trials),
        "BestTrialNumber": job.best,
    }


def read_trial_curves(call: Call, shape: Shape) -> Shape:
    """Return the objective of trials at each of their reports, or only the curves that changed since."""
    tuning_job = load_tuning_job(call, shape)
    job, table = job_of(tuning_job), _read_table(call, tuning_job)
    wanted = set(shape["TrialNumbers"]) if "TrialNumbers" in shape else None
    trials = [each.trial for each in table.trials if wanted is None or each.trial.number in wanted]
    found = call.yard.trial_curves.read(
        call.yard.compute.jobs,
        tuning_job.id,
        ((trial, job.plan.definition(trial.definition).objective.metric) for trial in trials if trial.job_id),
    )
    since = _parse_cursor(shape, found.id)
    changed = [each for each in found.curves if each.change > since]
    most, hyperband = shape.get("MaxPoints", _POINTS), _hyperband(job)
    return {
        "Curves": [_curve(reduce_curve(each, most)) for each in changed],
        "Cursor": f"{found.id}.{max((each.change for each in changed), default=since)}",
        "Rungs": list(hyperband.all_rungs) if hyperband is not None else None,
    }


def explain_next_trial(call: Call, shape: Shape) -> Shape:
    """Return what a tuning job would try next, and why; or why it tries nothing more."""
    tuning_job = load_tuning_job(call, shape)
    job, table = job_of(tuning_job), _read_table(call, tuning_job)
    if job.is_final or job.stop_reason:
        return {"IsLast": True, "Reasons": [job.stop_reason or "The tuning job has ended."]}
    if table.planned is not None:
        return _waiting_trial(job, table.planned)
    explained = _analyst(call).explain(_question(call, tuning_job, job, table))
    if explained is None:
        return {"IsLast": True, "Reasons": ["Every combination has been tried; nothing is left."]}
    return {
        "IsLast": False,
        "TrialNumber": job.planned + 1,
        "DefinitionName": explained.definition or None,
        "HyperParameters": dict(explained.values),
        "Reasons": list(explained.reasons),
        "ExpectedObjective": explained.expected,
        "StandardDeviation": explained.deviation,
        "ImprovementProbability": explained.chance,
    }


def survey_tuning_job(call: Call, shape: Shape) -> Shape:
    """Return how the objective of a tuning job depends on its hyperparameters."""
    tuning_job = load_tuning_job(call, shape)
    job, table = job_of(tuning_job), _read_table(call, tuning_job)
    definition = _definition_name(job, shape)
    names = shape.get("HyperParameterNames", [])
    if names and len(names) != 2:
        raise InvalidRequest(f"HyperParameterNames has {len(names)} names; give the two to compare, or none.")
    measured = sum(
        each.trial.definition == definition and measured_value(each.trial) is not None for each in table.trials
    )
    answer = {"DefinitionName": definition or None, "MeasuredTrials": measured, "NeededTrials": MIN_FITTED_TRIALS}
    survey = None
    if measured >= MIN_FITTED_TRIALS:
        survey = _analyst(call).survey(_question(call, tuning_job, job, table), definition=definition, names=names)
    return answer if survey is None else answer | {"Survey": _survey(survey)}


OPERATIONS: Operations = {
    "ListTrials": list_trials,
    "ReadTrialCurves": read_trial_curves,
    "ExplainNextTrial": explain_next_trial,
    "SurveyTuningJob": survey_tuning_job,
}


def _read_table(call: Call, tuning_job: Resource) -> TrialTable:
    return call.yard.trial_tables.read(call.yard.records, tuning_job)


def _parse_cursor(shape: Shape, table: str) -> int:
    """Return after which change to continue; 0 for everything, as for a cursor of a table that is gone."""
    known, _, change = shape.get("Cursor", "").partition(".")
    return int(change) if known == table and change.isdecimal() else 0


def _hyperband(job: TuningJob) -> Hyperband | None:
    """Return the rule that ends trials under Hyperband, which knows their brackets and rungs."""
    plan = job.plan
    if plan.strategy is not StrategyKind.HYPERBAND or plan.resources is None:
        return None
    return Hyperband(plan.definitions[0].objective, plan.resources)


def _trial(trial: TuningTrial, hyperband: Hyperband | None) -> Shape:
    return {
        "TrialNumber": trial.number,
        "TrainingJobName": trial.job,
        "DefinitionName": trial.definition or None,
        "HyperParameters": dict(trial.values),
        "Status": str(trial.status),
        "Objective": objective_of(trial),
        "IsMeasured": measured_value(trial) is not None,
        "StopCause": str(trial.cause) if trial.cause is not None else None,
        "Reason": trial.why or None,
        "Bracket": hyperband.bracket(trial.number) if hyperband is not None else None,
        "CreationTime": trial.created_at,
        "TrainingStartTime": trial.started_at,
        "TrainingEndTime": trial.ended_at,
    }


def _curve(curve: ReducedCurve) -> Shape:
    return {
        "TrialNumber": curve.number,
        "ReportCount": curve.total,
        "Reports": list(curve.reports),
        "Values": list(curve.values),
    }


def _waiting_trial(job: TuningJob, trial: TuningTrial) -> Shape:
    notes = [note for note in job.notes if note.startswith("Trials wait")]
    return {
        "IsLast": False,
        "TrialNumber": trial.number,
        "DefinitionName": trial.definition or None,
        "HyperParameters": dict(trial.values),
        "Reasons": ["It has been chosen, and waits until its training job can be created.", *notes[-1:]],
    }


def _question(call: Call, tuning_job: Resource, job: TuningJob, table: TrialTable) -> Question:
    parents = load_parents(call.yard.records, job) if job.plan.warm_start else {}
    trials = [each.trial for each in table.trials]
    return Question(job.plan, job.planned + 1, trials, parents, study=tuning_job.id)


def _definition_name(job: TuningJob, shape: Shape) -> str:
    """Return the definition that a request names, by default the first."""
    names = [each.name for each in job.plan.definitions]
    if "DefinitionName" not in shape:
        return names[0]
    if shape["DefinitionName"] not in names:
        known = ", ".join(names) if any(names) else "it has only one, without a name"
        raise InvalidRequest(f'There is no training job definition "{shape["DefinitionName"]}"; there are: {known}.')
    name: str = shape["DefinitionName"]
    return name


def _analyst(call: Call) -> ProcessAnalyst:
    if call.yard.analyst is None:
        raise Unavailable("This yard explains no searches.")
    return call.yard.analyst


def _survey(survey: Mapping[str, Any]) -> Shape:
    joint = survey["joint"]
    return {
        "FittedTrials": survey["fitted_trials"],
        "ExplainedVariance": survey["explained"],
        "Importances": [
            {"Name": each["name"], "Alone": each["alone"], "WithOthers": each["with_others"]}
            for each in survey["importances"]
        ],
        "Dependences": [
            {
                "Name": axis["name"],
                "Positions": axis["dependence"]["positions"],
                "Values": axis["dependence"]["values"],
            }
            for axis in survey["axes"]
        ],
        "JointDependence": {
            "Names": survey["joint_names"],
            "FirstPositions": joint["x_positions"],
            "SecondPositions": joint["y_positions"],
            "Rows": joint["values"],
        }
        if joint is not None
        else None,
    }
