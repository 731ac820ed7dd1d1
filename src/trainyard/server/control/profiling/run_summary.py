"""Summarizes runs, in the evaluation process: what later runs of the same job are compared with.

It imports neither rules nor reports, so that a job that needs neither costs little.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import InstanceFacts
from trainyard.insight.profiling.loading import InstanceSource, load_profile
from trainyard.insight.profiling.verdict.contract import EarlierRun
from trainyard.insight.profiling.verdict.regression import summarize_run
from trainyard.server.control.profiling.contract import RunQuestion, SourcePlace


def summarize(question: RunQuestion) -> Mapping[str, Any] | None:
    """Return the summary of a run as JSON; None if it has too few steps."""
    profile = load_profile(
        question.job,
        [instance_source(each) for each in question.sources],
        started_us=question.started_us,
        ended_us=question.ended_us,
        needs_hardware=False,
    )
    run = summarize_run(profile)
    return plain_run(run) if run is not None else None


def plain_run(run: EarlierRun) -> Mapping[str, Any]:
    """Return a run as JSON, with phases by their names."""
    return {
        "job": run.job,
        "ended_us": run.ended_us,
        "step_s": run.step_s,
        "phases_s": {StepPhase(phase).name.lower(): seconds for phase, seconds in run.phases_s.items()},
        "setup": dict(run.setup),
    }


def parse_run(plain: Mapping[str, Any]) -> EarlierRun | None:
    """Return a run that `plain_run` converted; None if it is not one, as after an update."""
    try:
        return EarlierRun(
            job=str(plain["job"]),
            ended_us=int(plain["ended_us"]),
            step_s=float(plain["step_s"]),
            phases_s={StepPhase[name.upper()]: float(seconds) for name, seconds in plain["phases_s"].items()},
            setup={str(name): str(value) for name, value in plain.get("setup", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def instance_source(place: SourcePlace) -> InstanceSource:
    facts = InstanceFacts(
        instance_type=place.instance_type,
        cores=place.cores,
        memory_bytes=place.memory_bytes,
        gpus=place.gpus,
        price_per_hour=place.price_per_hour,
        currency=place.currency,
    )
    return InstanceSource(place.host, Path(place.hardware), Path(place.steps), facts)
