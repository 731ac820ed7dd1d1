"""The values that a shell completes: jobs, studies, instance types, rules, images, engines, launchers and settings.

The user waits for each of them at a key. They are read from files of the home folder, or with one request to a running
yard. No yard is started; without one there is nothing to complete.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Access, access_from_environment, endpoint_access, find_home, find_yard
from trainyard.cli.terminal.console import selected_endpoint
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.home import Home

_TIMEOUT_S = 1.0
_MAX_NAMES = 100


def complete_jobs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the latest training and processing jobs whose names start with a text, and @last."""
    names = [
        job[f"{kind}Name"]
        for kind in ("TrainingJob", "ProcessingJob")
        for job in _list(ctx, f"List{kind}s", incomplete).get(f"{kind}Summaries", ())
    ]
    return _starting(["@last", *names], incomplete)


def complete_studies(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the latest tuning jobs whose names start with a text, and @last."""
    found = _list(ctx, "ListHyperParameterTuningJobs", incomplete)
    names = [each["HyperParameterTuningJobName"] for each in found.get("HyperParameterTuningJobSummaries", ())]
    return _starting(["@last", *names], incomplete)


def complete_instance_types(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the instance types of the catalog."""
    from trainyard.engines.catalog import Catalog

    try:
        types = [each.name for each in Catalog.read(_home(ctx).catalog_file)]
    except (TrainyardError, OSError):
        return []
    return _starting(types, incomplete)


def complete_rules(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the built-in rules."""
    return _starting(RULES, incomplete)


def complete_images(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the mapped images, and the repositories of framework images."""
    return _starting([*_table(_home(ctx).images_file, "images"), *_FRAMEWORK_IMAGES], incomplete)


def complete_mapped_images(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the mapped images."""
    return _starting(_table(_home(ctx).images_file, "images"), incomplete)


def complete_engines(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of engines."""
    return _starting(("local", "ray", "container"), incomplete)


def complete_launchers(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the launchers of distributed jobs."""
    from trainyard._sdk.training.distribution import LAUNCHERS

    return _starting(LAUNCHERS, incomplete)


def complete_settings(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the settings of a yard."""
    return _starting(SETTINGS, incomplete.replace("-", "_").lower())


_FRAMEWORK_IMAGES = ("pytorch-training:latest", "tensorflow-training:latest")
# The built-in rules, whose own modules import numpy. A test compares the two.
RULES = (
    "AllZero",
    "AttentionEntropyCollapse",
    "CheckInputImages",
    "ClassImbalance",
    "Confusion",
    "CreateXgboostReport",
    "DeadEmbedding",
    "DeadRelu",
    "ExplodingTensor",
    "FeatureImportanceOverweight",
    "GradientNoise",
    "LearningRateTooHigh",
    "LearningRateTooLow",
    "LossNotDecreasing",
    "LossSpike",
    "NLPSequenceRatio",
    "NotANumber",
    "Overfit",
    "Overtraining",
    "PoorWeightInitialization",
    "ReplicaDivergence",
    "SaturatedActivation",
    "SimilarAcrossRuns",
    "StalledTrainingRule",
    "TensorVariance",
    "TreeDepth",
    "UnchangedTensor",
    "VanishingGradient",
    "WeightUpdateRatio",
)

# The settings of a yard, whose own module is the server's. A test compares the two.
SETTINGS = (
    "action_commands",
    "action_patience",
    "action_timeout",
    "advertise",
    "body_limit_bytes",
    "container_options",
    "container_tool",
    "disk_is_encrypted",
    "engines",
    "environments_limit_bytes",
    "hang_after",
    "host",
    "hostnames",
    "inputs_kept",
    "job_files_kept",
    "keep_alive",
    "lease",
    "log_level",
    "master_key_file",
    "objects",
    "objects_access_key_id",
    "objects_cache_bytes",
    "objects_endpoint",
    "objects_region",
    "objects_secret_access_key",
    "port",
    "ray_address",
    "ray_folder",
    "ray_python",
    "ray_token",
    "records",
    "region",
    "reserve_bytes",
    "slots",
    "sms_url",
    "smtp_from",
    "smtp_url",
    "strict",
    "threads",
    "warm",
    "warm_idle",
    "webhook_hosts",
    "webhook_secret",
)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _table(file: Path, name: str) -> Mapping[str, Any]:
    try:
        table = tomllib.loads(file.read_text()).get(name, {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}
    return table if isinstance(table, dict) else {}


def _list(ctx: click.Context, operation: str, name_contains: str) -> dict[str, Any]:
    """Return the newest resources; nothing if no yard answers."""
    from trainyard.wire.light_call import call_json

    request: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": _MAX_NAMES}
    request |= {"NameContains": name_contains} if name_contains else {}
    try:
        access = _access(ctx)
        return call_json(
            access.url,
            f"SageMaker.{operation}",
            request,
            access_key_id=access.access_key_id,
            secret=access.secret_access_key,
            region=access.region,
            service="sagemaker",
            session_token=access.session_token,
            ca_bundle=access.ca_bundle,
            timeout_s=_TIMEOUT_S,
        )
    # Whatever is wrong, the user is typing and must not see it.
    except (TrainyardError, OSError, ValueError):
        return {}


def _access(ctx: click.Context) -> Access:
    if endpoint := selected_endpoint():
        return endpoint_access(endpoint, os.environ)
    named = None if ctx.params.get("folder") else access_from_environment(os.environ)
    return named or find_yard(_home(ctx)).access


def _home(ctx: click.Context) -> Home:
    return find_home(ctx.params.get("folder"), os.environ)
