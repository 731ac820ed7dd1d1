"""DescribeTuningJob: what the yard knows of a tuning job and AWS has no words for."""

from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.moving import load_tuning_job
from trainyard.server.tuning import tuning_job_of


def describe_tuning_job(call: Call, shape: Shape) -> Shape:
    job = tuning_job_of(load_tuning_job(call, shape))
    return {
        "HyperParameterTuningJobName": job.name,
        "HyperParameterTuningJobArn": job.arn,
        "UserName": call.yard.records.user(job.account).name,
        "Status": str(job.status),
        "Strategy": str(job.plan.strategy),
        "EarlyStopping": str(job.plan.early_stopping),
        "PruningRules": list(job.plan.pruning_rules),
        "RandomSeed": job.plan.seed,
        "Notes": list(job.notes),
        "StopReason": job.stop_reason or None,
        "FailureReason": job.failure or None,
        "PlannedJobs": job.planned,
        "MeasuredJobs": job.measured,
    }


OPERATIONS: Operations = {"DescribeTuningJob": describe_tuning_job}
