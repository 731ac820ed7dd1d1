"""The jobs in the pictures: trainings, one that a rule stops, one that fails, one on spot capacity, and a study."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trainyard import Session
from trainyard.debugger import CollectionConfig, DebuggerHookConfig, Rule, rule_configs
from trainyard.exceptions import UnexpectedStatusException
from trainyard.profiler import DetailedProfilingConfig, FrameworkProfile, ProfilerConfig
from trainyard.pytorch import PyTorch
from trainyard.tuner import ContinuousParameter, HyperparameterTuner, IntegerParameter

PROGRAMS = Path(__file__).parent / "programs"
RESUMING = Path(__file__).parents[2] / "examples" / "resuming.py"
METRICS = [{"Name": name, "Regex": rf"\b{name}=([0-9.e+-]+)"} for name in ("train_loss", "val_loss", "val_accuracy")]
# By name, with what distinguishes them.
VARIANTS: Mapping[str, dict[str, Any]] = {
    "digits-baseline": {},
    "digits-wide": {"width": 32},
    "digits-fast": {"learning-rate": 0.02},
    "digits-small-batches": {"batch-size": 16, "learning-rate": 0.001},
    "digits-dropout": {"dropout": 0.5, "dataset-version": "2"},
}
PROFILED, STOPPED, FAILED, INTERRUPTED, RUNNING, STUDY = (
    "digits-profiled",
    "heavy-weight-decay",
    "digits-relabelled",
    "line-on-spot",
    "digits-long",
    "digits-search",
)


def run_jobs(session: Session) -> None:
    """Run all jobs but the one that still runs in the pictures."""
    tuner = _tuner(session)
    for name, hyperparameters in VARIANTS.items():
        _estimator(session, hyperparameters=hyperparameters, rules=[_overfit()]).fit(job_name=name, logs=False)
    profiled = _estimator(session, hyperparameters={"epochs": 60, "pause": 0.004}, profiler_config=_profiler())
    profiled.fit(job_name=PROFILED, logs=False)
    _run_stopped(session)
    with suppress(UnexpectedStatusException):
        _estimator(session, program="missing_column.py").fit(job_name=FAILED, logs=False)
    _run_interrupted(session)
    tuner.fit(job_name=STUDY)


@contextmanager
def running_job(session: Session) -> Iterator[None]:
    """Run a job for the length of a block, and delete it."""
    running = _estimator(session, hyperparameters={"epochs": 4000, "pause": 0.02}, rules=[_overfit()])
    running.fit(job_name=RUNNING, wait=False)
    try:
        yield
    finally:
        session.stop_training_job(RUNNING)
        session.wait_for_job(RUNNING)
        session.api.call("sagemaker", "DeleteTrainingJob", TrainingJobName=RUNNING)


def _run_stopped(session: Session) -> None:
    stop = rule_configs.ActionList(rule_configs.StopTraining())
    rules = [
        Rule.sagemaker(rule_configs.vanishing_gradient(), actions=stop),
        Rule.sagemaker(rule_configs.loss_not_decreasing(), rule_parameters={"num_steps": "200"}),
        Rule.sagemaker(rule_configs.dead_relu()),
    ]
    _estimator(session, program="heavy_weight_decay.py", rules=rules).fit(job_name=STOPPED, logs=False)


def _run_interrupted(session: Session) -> None:
    """Run a spot job, and take its capacity once it has a checkpoint."""
    bucket, prefix = session.default_bucket(), "pictures/checkpoints"
    estimator = PyTorch(
        entry_point=str(RESUMING),
        instance_count=1,
        instance_type="ml.m5.large",
        hyperparameters={"epochs": 12, "pause": 0.5},
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        use_spot_instances=True,
        max_run=600,
        max_wait=1200,
        checkpoint_s3_uri=f"s3://{bucket}/{prefix}",
        tags=[{"Key": "team", "Value": "forecasts"}],
        sagemaker_session=session,
    )
    estimator.fit(job_name=INTERRUPTED, wait=False)
    while not session.list_s3_files(bucket, prefix):
        time.sleep(0.1)
    session.api.call("trainyard", "InterruptJob", TrainingJobName=INTERRUPTED)
    session.wait_for_job(INTERRUPTED)


def _estimator(session: Session, *, program: str = "classify_digits.py", **options: Any) -> PyTorch:
    hook = DebuggerHookConfig(
        hook_parameters={"save_interval": "10"},
        collection_configs=[CollectionConfig("weights"), CollectionConfig("gradients"), CollectionConfig("biases")],
    )
    return PyTorch(
        entry_point=str(PROGRAMS / program),
        instance_count=1,
        instance_type="ml.m5.large",
        metric_definitions=METRICS,
        debugger_hook_config=hook,
        tags=[{"Key": "team", "Value": "vision"}, {"Key": "data", "Value": "digits"}],
        sagemaker_session=session,
        **options,
    )


def _tuner(session: Session) -> HyperparameterTuner:
    return HyperparameterTuner(
        _estimator(session, hyperparameters={"epochs": 8}),
        objective_metric_name="val_loss",
        hyperparameter_ranges={
            "learning-rate": ContinuousParameter(0.0001, 0.1, scaling_type="Logarithmic"),
            "batch-size": IntegerParameter(16, 256, scaling_type="Logarithmic"),
            "dropout": ContinuousParameter(0.0, 0.6),
        },
        objective_type="Minimize",
        max_jobs=24,
        max_parallel_jobs=2,
        early_stopping_type="Curve",
    )


def _overfit() -> Rule:
    return Rule.sagemaker(rule_configs.overfit())


def _profiler() -> ProfilerConfig:
    window = DetailedProfilingConfig(start_step=40, num_steps=8)
    return ProfilerConfig(
        system_monitor_interval_millis=100,
        framework_profile_params=FrameworkProfile(detailed_profiling_config=window),
    )
