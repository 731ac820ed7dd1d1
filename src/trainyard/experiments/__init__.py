"""Experiments and their runs: log parameters, metrics and files, and compare what came out."""

import io
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from trainyard._sdk.experiments import charts
from trainyard._sdk.experiments.capture import captured_metadata, captured_parameters, git_state, installed_packages
from trainyard._sdk.experiments.entities import (
    RUN_TAG,
    component_of_run,
    ensure_component,
    ensure_experiment,
    ensure_trial,
    parameter_shape,
    parameter_value,
    run_group_of,
    tag_list,
)
from trainyard._sdk.experiments.metric_writer import MetricWriter
from trainyard._sdk.experiments.sessions import RunSession, open_session
from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError
from trainyard.foundation.experiments import component_name_of_job

if TYPE_CHECKING:
    from trainyard.session import Session

__all__ = ["Experiment", "Run", "list_runs", "load_run"]

_UNIQUE = "%Y-%m-%d-%H-%M-%S-%f"
_MEDIA_TYPES = {".json": "application/json", ".png": "image/png", ".csv": "text/csv", ".txt": "text/plain"}
# The run of the innermost `with` block of this thread.
_current = threading.local()


class Experiment:
    """An experiment: runs of the same kind, to be compared with each other.

    Creating one creates it in the yard unless it exists there.

    Args:
        experiment_name: Name of the experiment.
        description: What it is about; only used if the experiment is new.
        display_name: Name for people; only used if the experiment is new.
        tags: Tags of a new experiment, by key.
        sagemaker_session: The session to use. Default: a new one.
    """

    def __init__(
        self,
        experiment_name: str,
        description: str = "",
        display_name: str = "",
        tags: Mapping[str, str] | None = None,
        sagemaker_session: "Session | None" = None,
    ) -> None:
        self.experiment_name = experiment_name
        self.session = _session(sagemaker_session)
        ensure_experiment(
            self.session.api,
            experiment_name,
            Description=description,
            DisplayName=display_name,
            Tags=tag_list(dict(tags or {})),
        )

    @property
    def _sdk_session(self) -> "Session":
        return cast("Session", self.session)

    def __repr__(self) -> str:
        return f"<trainyard.Experiment {self.experiment_name}>"

    def run(self, run_name: str | None = None, **options: Any) -> "Run":
        """Return a run of this experiment; a new one, unless one has this name.

        Args:
            run_name: Name of the run. Default: from the time.
            **options: More arguments of `Run`.
        """
        return Run(self.experiment_name, run_name, sagemaker_session=self._sdk_session, **options)

    def runs(self) -> list["Run"]:
        """Return all runs of this experiment, the newest first."""
        return list_runs(self.experiment_name, sagemaker_session=self._sdk_session)

    def dataframe(self, only_differences: bool = False) -> Any:
        """Return all runs as a pandas DataFrame: their parameters, metrics and artifacts.

        Args:
            only_differences: Whether to leave out the columns in which all runs have the same value.
        """
        from trainyard.analytics import ExperimentAnalytics

        found = ExperimentAnalytics(
            experiment_name=self.experiment_name, sagemaker_session=self._sdk_session
        ).dataframe()
        if not only_differences or len(found) < 2:
            return found
        names = [name for name in found.columns if len({str(value) for value in found[name]}) > 1]
        return found[names]

    def delete(self) -> None:
        """Delete the experiment with all its runs."""
        api = self.session.api
        for trial in _pages(self.session, "ListTrials", "TrialSummaries", ExperimentName=self.experiment_name):
            for each in _pages(
                self.session, "ListTrialComponents", "TrialComponentSummaries", TrialName=trial["TrialName"]
            ):
                name = each["TrialComponentName"]
                api.call(
                    "sagemaker", "DisassociateTrialComponent", TrialComponentName=name, TrialName=trial["TrialName"]
                )
                with suppress(TrainyardError):
                    # It may belong to another trial too.
                    api.call("sagemaker", "DeleteTrialComponent", TrialComponentName=name)
            api.call("sagemaker", "DeleteTrial", TrialName=trial["TrialName"])
        api.call("sagemaker", "DeleteExperiment", ExperimentName=self.experiment_name)


class Run:
    """One run of an experiment. In a `with` block its status and times are recorded, and an exception makes it Failed.

    Creating one creates the experiment and the run in the yard unless they exist there. A new run records the commit,
    the packages, the arguments and the machine by itself.

    Args:
        experiment_name: Name of the experiment.
        run_name: Name of the run. Default: from the time.
        experiment_display_name: Name for people of a new experiment.
        run_display_name: Name for people of a new run.
        tags: Tags of a new run.
        sagemaker_session: The session to use. Default: a new one.
        artifact_bucket: The bucket for files. Default: the default bucket of the session.
        artifact_prefix: The prefix for files. Default: `trial-component-artifacts`.
        capture: Whether a new run records the commit, the packages, the arguments and the machine.
    """

    def __init__(
        self,
        experiment_name: str,
        run_name: str | None = None,
        experiment_display_name: str | None = None,
        run_display_name: str | None = None,
        tags: list[dict[str, str]] | Mapping[str, str] | None = None,
        sagemaker_session: "Session | None" = None,
        artifact_bucket: str | None = None,
        artifact_prefix: str | None = None,
        capture: bool = True,
    ) -> None:
        self.experiment_name = experiment_name
        self.run_name = run_name or f"run-{datetime.now(UTC).strftime(_UNIQUE)}"
        self.run_group_name: str | None = run_group_of(experiment_name)
        component = component_of_run(experiment_name, self.run_name)
        session = _session(sagemaker_session)
        self._open(session, component, artifact_bucket, artifact_prefix)
        ensure_experiment(session.api, experiment_name, DisplayName=experiment_display_name)
        ensure_trial(session.api, run_group_of(experiment_name), experiment_name)
        state = git_state(Path.cwd()) if capture else None
        is_new = ensure_component(
            session.api,
            component,
            DisplayName=run_display_name or self.run_name,
            Tags=[RUN_TAG, *tag_list(tags)],
            MetadataProperties=captured_metadata(state, os.environ) if capture else None,
        )
        session.api.call(
            "sagemaker",
            "AssociateTrialComponent",
            TrialComponentName=component,
            TrialName=run_group_of(experiment_name),
        )
        if is_new and capture:
            self.log_parameters(captured_parameters(state))
            self._log_bytes("packages", installed_packages().encode(), suffix=".txt", is_output=False)

    @classmethod
    def _of_component(cls, session: RunSession, component: str, *, experiment: str = "", run_name: str = "") -> "Run":
        """Return the run of a component that exists, such as that of a training job."""
        run = cls.__new__(cls)
        run.experiment_name, run.run_name = experiment, run_name or component
        run.run_group_name = run_group_of(experiment) if experiment else None
        run._open(session, component, None, None)
        return run

    def _open(self, session: RunSession, component: str, bucket: str | None, prefix: str | None) -> None:
        self.session, self.trial_component_name = session, component
        self._bucket, self._prefix = bucket, prefix or "trial-component-artifacts"
        self._metrics = MetricWriter(session.api, component)
        self._outer: Run | None = None

    def __repr__(self) -> str:
        return f"<trainyard.Run {self.trial_component_name}>"

    @property
    def experiment_config(self) -> dict[str, str]:
        """What to pass to `fit` as `experiment_config`: the job then belongs to the experiment and finds this run."""
        config = {"ExperimentName": self.experiment_name, "TrialName": self.run_group_name, "RunName": self.run_name}
        return {name: value for name, value in config.items() if value}

    def describe(self) -> dict[str, Any]:
        """Return the DescribeTrialComponent response: parameters, metrics, artifacts, status and times."""
        return self.session.api.call(
            "sagemaker", "DescribeTrialComponent", TrialComponentName=self.trial_component_name
        )

    @property
    def parameters(self) -> dict[str, float | str]:
        """The parameters of the run by name."""
        return {name: parameter_value(shape) for name, shape in self.describe()["Parameters"].items()}

    def log_parameter(self, name: str, value: object) -> None:
        """Record a parameter: a number, or anything else as text.

        Args:
            name: Name of the parameter.
            value: Its value.
        """
        self.log_parameters({name: value})

    def log_parameters(self, parameters: Mapping[str, object]) -> None:
        """Record several parameters.

        Args:
            parameters: The values by name.
        """
        self._update(Parameters={str(name): parameter_shape(value) for name, value in parameters.items()})

    def log_metric(
        self, name: str, value: float, timestamp: datetime | float | None = None, step: int | None = None
    ) -> None:
        """Record a value of a metric. It is sent in the background; leaving the `with` block waits for all of them.

        Args:
            name: Name of the metric.
            value: The value.
            timestamp: When it was measured. Default: now.
            step: The step or epoch that it belongs to.
        """
        at = datetime.fromtimestamp(timestamp, UTC) if isinstance(timestamp, int | float) else timestamp
        self._metrics.add(name, value, step=step, at=at)

    def log_artifact(self, name: str, value: str, media_type: str | None = None, is_output: bool = True) -> None:
        """Record something that the run read or wrote, such as a location on S3.

        Args:
            name: Name of the artifact.
            value: The location, or another short text.
            media_type: Its media type, such as `text/csv`.
            is_output: Whether the run wrote it; otherwise it read it.
        """
        artifact = {"Value": value} | ({"MediaType": media_type} if media_type else {})
        self._update(**{"OutputArtifacts" if is_output else "InputArtifacts": {name: artifact}})

    def log_file(
        self,
        file_path: str,
        name: str | None = None,
        media_type: str | None = None,
        is_output: bool = True,
        extra_args: Mapping[str, str] | None = None,
    ) -> None:
        """Upload a file and record its location.

        Args:
            file_path: Path of the file.
            name: Name of the artifact. Default: the name of the file.
            media_type: Its media type. Default: by the ending of its name.
            is_output: Whether the run wrote it; otherwise it read it.
            extra_args: More members of the upload request.
        """
        path = Path(file_path)
        if not path.is_file():
            raise InvalidRequest(f'There is no file "{file_path}" to log.')
        extra = dict(extra_args) if extra_args else None
        uri = self.session.upload_data(str(path), self._artifact_bucket(), self._artifact_key(), extra_args=extra)
        self.log_artifact(name or path.name, uri, media_type or _MEDIA_TYPES.get(path.suffix), is_output)

    def log_figure(self, figure: Any, name: str, is_output: bool = True) -> None:
        """Upload a figure of Matplotlib, or anything else with a method `savefig`, as a PNG picture.

        Args:
            figure: The figure.
            name: Name of the artifact.
            is_output: Whether the run wrote it; otherwise it read it.
        """
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        self._log_bytes(name, picture.getvalue(), suffix=".png", is_output=is_output)

    def log_confusion_matrix(
        self, y_true: Sequence[Any], y_pred: Sequence[Any], title: str | None = None, is_output: bool = True
    ) -> None:
        """Record how often each class was predicted as each class.

        Args:
            y_true: The true classes.
            y_pred: The predicted classes.
            title: Title of the chart, which is also the name of the artifact.
            is_output: Whether the run wrote it; otherwise it read it.
        """
        self._log_chart(charts.confusion_matrix(y_true, y_pred, title), is_output=is_output)

    def log_roc_curve(
        self, y_true: Sequence[Any], y_score: Sequence[float], title: str | None = None, is_output: bool = True
    ) -> None:
        """Record the ROC curve of a classifier of two classes.

        Args:
            y_true: The true classes.
            y_score: The score of each example.
            title: Title of the chart, which is also the name of the artifact.
            is_output: Whether the run wrote it; otherwise it read it.
        """
        self._log_chart(charts.roc_curve(y_true, y_score, title), is_output=is_output)

    def log_precision_recall(
        self,
        y_true: Sequence[Any],
        predicted_probabilities: Sequence[float],
        positive_label: Any = None,
        title: str | None = None,
        is_output: bool = True,
        no_skill: float | None = None,
    ) -> None:
        """Record the precision-recall curve of a classifier of two classes.

        Args:
            y_true: The true classes.
            predicted_probabilities: The probability of the positive class for each example.
            positive_label: The positive class. Default: 1, or the higher of the two.
            title: Title of the chart, which is also the name of the artifact.
            is_output: Whether the run wrote it; otherwise it read it.
            no_skill: The precision of guessing. Default: the share of positive examples.
        """
        chart = charts.precision_recall(
            y_true, predicted_probabilities, positive_label=positive_label, title=title, no_skill=no_skill
        )
        self._log_chart(chart, is_output=is_output)

    def close(self) -> None:
        """Wait until all metrics were sent. The run can be used afterwards."""
        self._metrics.close()

    def __enter__(self) -> "Run":
        self._outer, _current.run = getattr(_current, "run", None), self
        self._update(
            StartTime=datetime.now(UTC), Status={"PrimaryStatus": "InProgress", "Message": "Within a run context"}
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.run, self._outer = self._outer, None
        self.close()
        status = {"PrimaryStatus": "Completed"}
        if kind is not None:
            status = {"PrimaryStatus": "Failed", "Message": f"{kind.__name__}: {error}"[:1024]}
        self._update(EndTime=datetime.now(UTC), Status=status)

    def _update(self, **members: Any) -> None:
        self.session.api.call(
            "sagemaker", "UpdateTrialComponent", TrialComponentName=self.trial_component_name, **members
        )

    def _log_chart(self, chart: charts.Chart, *, is_output: bool) -> None:
        name = chart["title"] or f"{chart['type']}-{datetime.now(UTC).strftime(_UNIQUE)}"
        self._log_bytes(name, json.dumps(chart).encode(), suffix=".json", is_output=is_output)

    def _log_bytes(self, name: str, data: bytes, *, suffix: str, is_output: bool) -> None:
        file = re.sub(r"[^A-Za-z0-9._-]+", "-", name) + suffix
        bucket, key = self._artifact_bucket(), f"{self._artifact_key()}/{file}"
        self.session.api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=data)
        self.log_artifact(name, f"s3://{bucket}/{key}", _MEDIA_TYPES[suffix], is_output)

    def _artifact_bucket(self) -> str:
        self._bucket = self._bucket or self.session.default_bucket()
        return self._bucket

    def _artifact_key(self) -> str:
        return f"{self._prefix}/{self.trial_component_name}"


def load_run(
    run_name: str | None = None,
    experiment_name: str | None = None,
    sagemaker_session: "Session | None" = None,
    artifact_bucket: str | None = None,
    artifact_prefix: str | None = None,
) -> Run:
    """Return a run that exists: by its name, that of the `with` block around the call, or that of the training job.

    In a training job, this is the run that the job was started from; if it was started from none, it is the component
    that the job itself has in the yard.

    Args:
        run_name: Name of the run.
        experiment_name: Name of its experiment.
        sagemaker_session: The session to use. Default: a new one.
        artifact_bucket: The bucket for files. Default: the default bucket of the session.
        artifact_prefix: The prefix for files.

    Raises:
        InvalidRequest: There is neither a name, nor a `with` block, nor a training job.
        NotFound: There is no such run.
    """
    if run_name is not None:
        if experiment_name is None:
            raise InvalidRequest("load_run needs an experiment_name along with the run_name.")
        session = _session(sagemaker_session)
        run = Run._of_component(
            session, component_of_run(experiment_name, run_name), experiment=experiment_name, run_name=run_name
        )
    elif (current := getattr(_current, "run", None)) is not None:
        found: Run = current
        return found
    elif job := os.environ.get("TRAINING_JOB_NAME"):
        run = _run_of_job(_session(sagemaker_session), job)
    else:
        raise InvalidRequest(
            "load_run needs a run_name and an experiment_name, because it is neither in the with block of a run nor "
            "in a training job."
        )
    _require_run(run)
    run._bucket, run._prefix = artifact_bucket, artifact_prefix or run._prefix
    return run


def list_runs(
    experiment_name: str,
    created_before: datetime | None = None,
    created_after: datetime | None = None,
    sagemaker_session: "Session | None" = None,
    max_results: int | None = None,
) -> list[Run]:
    """Return the runs of an experiment, the newest first.

    Args:
        experiment_name: Name of the experiment.
        created_before: Only runs that were created before this moment.
        created_after: Only runs that were created after it.
        sagemaker_session: The session to use. Default: a new one.
        max_results: How many at most.
    """
    session = _session(sagemaker_session)
    times = {"CreatedBefore": created_before, "CreatedAfter": created_after}
    prefix = f"{experiment_name.lower()}-"
    runs: list[Run] = []
    for each in _pages(
        session,
        "ListTrialComponents",
        "TrialComponentSummaries",
        ExperimentName=experiment_name,
        **{name: at for name, at in times.items() if at is not None},
    ):
        component = each["TrialComponentName"]
        # Jobs have components of their own, which are no runs.
        if "TrialComponentSource" not in each and component.startswith(prefix):
            name = component.removeprefix(prefix)
            runs.append(Run._of_component(session, component, experiment=experiment_name, run_name=name))
        if max_results is not None and len(runs) == max_results:
            break
    return runs


def _session(given: "Session | None") -> RunSession:
    return open_session() if given is None else cast("RunSession", given)


def _run_of_job(session: RunSession, job: str) -> Run:
    config = session.api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=job).get("ExperimentConfig", {})
    experiment, run_name = config.get("ExperimentName", ""), config.get("RunName", "")
    if experiment and run_name:
        component = component_of_run(experiment, run_name)
        return Run._of_component(session, component, experiment=experiment, run_name=run_name)
    return Run._of_component(session, component_name_of_job(job), experiment=experiment)


def _require_run(run: Run) -> None:
    try:
        run.describe()
    except TrainyardError as error:
        if getattr(error, "code", "") != "ResourceNotFound":
            raise
        raise NotFound("run", run.trial_component_name) from error


def _pages(session: RunSession, operation: str, member: str, **request: Any) -> Iterator[dict[str, Any]]:
    while True:
        answer = session.api.call("sagemaker", operation, MaxResults=100, **request)
        yield from answer[member]
        if "NextToken" not in answer:
            return
        request["NextToken"] = answer["NextToken"]
