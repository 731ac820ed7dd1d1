"""A tuner: an estimator with ranges and an objective. `fit` starts a tuning job."""

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self, Unpack

from trainyard._sdk.job_names import base_of_image, base_of_study, create_study_named
from trainyard._sdk.training.job import hyperparameter
from trainyard._sdk.training.options import Tags
from trainyard._sdk.training.stream import Description
from trainyard._sdk.tuning.configs import (
    HyperbandStrategyConfig,
    InstanceConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
)
from trainyard._sdk.tuning.import_jobs import import_jobs
from trainyard._sdk.tuning.job import TuningJobHandle
from trainyard._sdk.tuning.request import (
    CURVE,
    EARLY_STOPPING_TAG,
    PRUNE_ON_TAG,
    Algorithm,
    AlgorithmRequest,
    LaterTuningKeywords,
    MetricDefinitions,
    Ranges,
    TuningKeywords,
    TuningOptions,
    range_shapes,
    require_consistent,
    tuning_request,
)
from trainyard._sdk.tuning.text import definitions_of
from trainyard.analytics import HyperparameterTuningJobAnalytics
from trainyard.estimator import ESTIMATOR_CLASS, TUNING_HYPERPARAMETERS, Estimator, EstimatorBase, Framework
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.later_modules import LaterMembers
from trainyard.inputs import Inputs, Shape
from trainyard.parameter import (
    CategoricalParameter,
    ContinuousParameter,
    IntegerParameter,
    ParameterRange,
)
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.tensorflow import TensorFlow

if TYPE_CHECKING:
    from trainyard._sdk.tuning.plots import Plots

__all__ = [
    "CategoricalParameter",
    "ContinuousParameter",
    "HyperbandStrategyConfig",
    "HyperparameterTuner",
    "InstanceConfig",
    "IntegerParameter",
    "ParameterRange",
    "StrategyConfig",
    "TuningJobCompletionCriteriaConfig",
    "WarmStartConfig",
    "WarmStartTypes",
    "create_identical_dataset_and_algorithm_tuner",
    "create_transfer_learning_tuner",
]

# The name of a single algorithm that has no name.
_ONLY = ""
_FRAMEWORKS: dict[str, type[EstimatorBase]] = {"PyTorch": PyTorch, "TensorFlow": TensorFlow, "Estimator": Estimator}


class HyperparameterTuner(LaterMembers, TuningOptions):
    """Searches for the hyperparameters with which the training jobs of an estimator reach the best objective.

    Creating a tuner does not call the yard; `fit` does. The order of the arguments is that of the sagemaker SDK.

    Args:
        estimator: The estimator whose hyperparameters are tuned.
        objective_metric_name: Name of the metric to optimize.
        hyperparameter_ranges: The ranges by hyperparameter name.
        metric_definitions: How to read the metrics from the log: a list of `{"Name": …, "Regex": …}`. Default: those of
            the estimator.
        strategy: `Bayesian`, `Random`, `Hyperband` or `Grid`.
        objective_type: `Maximize` or `Minimize`.
        max_jobs: Number of training jobs. Default: 1, or no limit if there is another limit or a grid.
        max_parallel_jobs: How many training jobs may run at the same time.
        max_runtime_in_seconds: Time limit of the tuning job, in seconds.
        tags: Tags of the tuning job: a mapping, or a list of `{"Key": …, "Value": …}`.
        base_tuning_job_name: Prefix of generated tuning job names. Default: the name of the image.
        warm_start_config: The ended tuning jobs to learn from.
        strategy_config: The configuration of Hyperband.
        completion_criteria_config: Conditions that end the tuning job early.
        early_stopping_type: `Off`, `Auto`, which stops training jobs that are worse than the median, or `Curve`, which
            stops training jobs whose learning curves are unlikely to reach the best. `Curve` is Trainyard's own.
        estimator_name: Name of the estimator, for tuners of several estimators.
        random_seed: Seed of the search, to repeat it.
        autotune: Whether the yard chooses ranges and other settings.
        hyperparameters_to_keep_static: With `autotune`: the hyperparameters that keep their values.
        prune_on: Names of debugger rules that stop a training job when they find an issue. Trainyard's own.

    Raises:
        InvalidRequest: The options contradict each other.
    """

    def __init__(
        self,
        estimator: EstimatorBase,
        objective_metric_name: str,
        hyperparameter_ranges: Ranges | None,
        metric_definitions: MetricDefinitions | None = None,
        strategy: str = "Bayesian",
        objective_type: str = "Maximize",
        max_jobs: int | None = None,
        max_parallel_jobs: int = 1,
        max_runtime_in_seconds: int | None = None,
        tags: Tags | None = None,
        base_tuning_job_name: str | None = None,
        warm_start_config: WarmStartConfig | None = None,
        strategy_config: StrategyConfig | None = None,
        completion_criteria_config: TuningJobCompletionCriteriaConfig | None = None,
        early_stopping_type: str = "Off",
        estimator_name: str | None = None,
        random_seed: int | None = None,
        autotune: bool = False,
        hyperparameters_to_keep_static: Sequence[str] | None = None,
        *,
        prune_on: Sequence[str] = (),
    ) -> None:
        is_limited = strategy == "Grid" or autotune or max_runtime_in_seconds or completion_criteria_config
        super().__init__(
            strategy=strategy,
            objective_type=objective_type,
            max_jobs=max_jobs if max_jobs is not None or is_limited else 1,
            max_parallel_jobs=max_parallel_jobs,
            max_runtime_in_seconds=max_runtime_in_seconds,
            tags=tags,
            base_tuning_job_name=base_tuning_job_name,
            warm_start_config=warm_start_config,
            strategy_config=strategy_config,
            completion_criteria_config=completion_criteria_config,
            early_stopping_type=early_stopping_type,
            random_seed=random_seed,
            autotune=autotune,
            prune_on=(prune_on,) if isinstance(prune_on, str) else tuple(prune_on),
        )
        require_consistent(self)
        self.latest_tuning_job: TuningJobHandle | None = None
        algorithm = Algorithm(
            estimator,
            objective_metric_name,
            hyperparameter_ranges or {},
            metric_definitions,
            hyperparameters_to_keep_static,
        )
        self._algorithms: dict[str, Algorithm] = {}
        self._add(estimator_name or _ONLY, algorithm)

    @classmethod
    def create(
        cls,
        estimator_dict: Mapping[str, EstimatorBase],
        objective_metric_name_dict: Mapping[str, str],
        hyperparameter_ranges_dict: Mapping[str, Ranges],
        metric_definitions_dict: Mapping[str, MetricDefinitions] | None = None,
        base_tuning_job_name: str | None = None,
        strategy: str = "Bayesian",
        strategy_config: StrategyConfig | None = None,
        completion_criteria_config: TuningJobCompletionCriteriaConfig | None = None,
        objective_type: str = "Maximize",
        max_jobs: int | None = None,
        max_parallel_jobs: int = 1,
        *,
        hyperparameters_to_keep_static_dict: Mapping[str, Sequence[str]] | None = None,
        **options: Unpack[LaterTuningKeywords],
    ) -> Self:
        """Return a tuner of several estimators, each with its own name, objective and ranges.

        Args:
            estimator_dict: The estimators by name.
            objective_metric_name_dict: The metric to optimize, by estimator name.
            hyperparameter_ranges_dict: The ranges, by estimator name.
            metric_definitions_dict: The metric definitions, by estimator name.
            base_tuning_job_name: Prefix of generated tuning job names.
            strategy: `Bayesian`, `Random`, `Hyperband` or `Grid`.
            strategy_config: The configuration of Hyperband.
            completion_criteria_config: Conditions that end the tuning job early.
            objective_type: `Maximize` or `Minimize`.
            max_jobs: Number of training jobs.
            max_parallel_jobs: How many training jobs may run at the same time.
            hyperparameters_to_keep_static_dict: With `autotune`: the hyperparameters that keep their values, by
                estimator name.
            **options: Further options of `HyperparameterTuner`.

        Raises:
            InvalidRequest: An argument does not have the names of the estimators, or the options contradict each other.
        """
        names = _names_of(estimator_dict)
        _require_names("objective_metric_name_dict", objective_metric_name_dict, names, all_of_them=True)
        _require_names("hyperparameter_ranges_dict", hyperparameter_ranges_dict, names, all_of_them=True)
        _require_names("metric_definitions_dict", metric_definitions_dict, names)
        _require_names("hyperparameters_to_keep_static_dict", hyperparameters_to_keep_static_dict, names)
        algorithms = {
            name: Algorithm(
                estimator_dict[name],
                objective_metric_name_dict[name],
                hyperparameter_ranges_dict[name],
                (metric_definitions_dict or {}).get(name),
                (hyperparameters_to_keep_static_dict or {}).get(name),
            )
            for name in names
        }
        keywords: TuningKeywords = {
            **options,
            "base_tuning_job_name": base_tuning_job_name,
            "strategy": strategy,
            "strategy_config": strategy_config,
            "completion_criteria_config": completion_criteria_config,
            "objective_type": objective_type,
            "max_jobs": max_jobs,
            "max_parallel_jobs": max_parallel_jobs,
        }
        return cls._from_algorithms(algorithms, keywords)

    def fit(
        self,
        inputs: Inputs | Mapping[str, Inputs] | None = None,
        job_name: str | None = None,
        include_cls_metadata: bool | Mapping[str, bool] | None = False,
        estimator_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
        wait: bool = True,
        *,
        logs: bool = True,
    ) -> None:
        """Start a tuning job and, by default, wait until it has ended and show a line for every ended training job.

        Args:
            inputs: The channels, as `EstimatorBase.fit` takes them; for several estimators, by estimator name.
            job_name: Name of the tuning job. Default: `base_tuning_job_name` and the time.
            include_cls_metadata: Whether the job records the class of the estimator; for several estimators, by
                estimator name.
            estimator_kwargs: Must be empty; no estimator takes further arguments here.
            wait: Whether to wait until the tuning job has ended.
            logs: Whether to show a line for every training job that has ended.

        Raises:
            UnexpectedStatusException: The tuning job has failed; the message has its name and the reason.
            InvalidRequest: The options contradict each other.
        """
        require_consistent(self)
        _require_empty(estimator_kwargs)

        def create(name: str) -> None:
            algorithms = [
                AlgorithmRequest(
                    key,
                    algorithm,
                    algorithm.estimator.request_of(f"{name}-{key}" if key else name, self._inputs_of(key, inputs)),
                    has_class_metadata=self._has_metadata(key, include_cls_metadata),
                )
                for key, algorithm in self._algorithms.items()
            ]
            request = tuning_request(name, self, algorithms)
            self.sagemaker_session.api.call("sagemaker", "CreateHyperParameterTuningJob", **request)

        if job_name:
            create(job_name)
        name = job_name or create_study_named(self._base_name(), create)
        self.latest_tuning_job = TuningJobHandle(self.sagemaker_session.api, name)
        if wait:
            self.latest_tuning_job.wait(logs)

    def wait(self) -> None:
        """Wait until the latest tuning job has ended."""
        self._latest().wait()

    def _repr_html_(self) -> str | None:
        # Notebooks show the text instead of None.
        return None if self.latest_tuning_job is None else self.latest_tuning_job._repr_html_()

    def _ipython_display_(self) -> None:
        if self.latest_tuning_job is None:
            raise NotImplementedError
        self.latest_tuning_job._ipython_display_()

    def describe(self) -> dict[str, Any]:
        """Return the DescribeHyperParameterTuningJob response of the latest tuning job."""
        return self._latest().describe()

    def stop_tuning_job(self) -> None:
        """Stop the latest tuning job and its running training jobs. The call returns before they have ended."""
        self._latest().stop()

    stop = stop_tuning_job

    def analytics(self) -> HyperparameterTuningJobAnalytics:
        """Return the results of the latest tuning job as a table."""
        return HyperparameterTuningJobAnalytics(self._latest().name, self.sagemaker_session)

    @property
    def plots(self) -> "Plots":
        """The charts of the latest tuning job. They need Bokeh."""
        from trainyard._sdk.tuning.plots import Plots

        return Plots.of(self.analytics())

    def best_training_job(self) -> str:
        """Return the name of the best training job of the latest tuning job.

        Raises:
            InvalidRequest: No training job has reported the objective yet.
        """
        name: str = self._best()["TrainingJobName"]
        return name

    def best_estimator(self, best_training_job: Description | None = None) -> EstimatorBase:
        """Return the estimator of the best training job, with its hyperparameters and its model.

        Args:
            best_training_job: Summary of another training job to use instead.
        """
        best = best_training_job or self._best()
        algorithm = self._algorithms.get(best.get("TrainingJobDefinitionName", _ONLY)) or self._first()
        return type(algorithm.estimator).attach(best["TrainingJobName"], self.sagemaker_session)

    def override_resource_config(
        self, instance_configs: Sequence[InstanceConfig] | Mapping[str, Sequence[InstanceConfig]] | None
    ) -> None:
        """Run the training jobs on other instances than those of their estimators.

        Args:
            instance_configs: The instances; for several estimators, by estimator name. None restores those of the
                estimators.
        """
        if not isinstance(instance_configs, Mapping):
            self._first().instance_configs = instance_configs
            return
        _require_names("instance_configs", instance_configs, list(self._algorithms))
        for name, configs in instance_configs.items():
            self._algorithms[name].instance_configs = configs

    def identical_dataset_and_algorithm_tuner(
        self,
        additional_parents: Iterable[str] | None = None,
        *,
        hyperparameter_ranges: Ranges | None = None,
        **changes: Unpack[TuningKeywords],
    ) -> Self:
        """Return a tuner that learns from the latest tuning job, for the same data and the same algorithm.

        Args:
            additional_parents: Names of further tuning jobs to learn from.
            hyperparameter_ranges: Other ranges. Default: those of this tuner.
            **changes: Options of `HyperparameterTuner` to change. The others stay as they are.
        """
        kind = WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM
        return self._warm_start_tuner(kind, additional_parents, ranges=hyperparameter_ranges, changes=changes)

    def transfer_learning_tuner(
        self,
        additional_parents: Iterable[str] | None = None,
        estimator: EstimatorBase | None = None,
        *,
        hyperparameter_ranges: Ranges | None = None,
        **changes: Unpack[TuningKeywords],
    ) -> Self:
        """Return a tuner that learns from the latest tuning job, for other data or another algorithm.

        Args:
            additional_parents: Names of further tuning jobs to learn from.
            estimator: Another estimator. Default: that of this tuner.
            hyperparameter_ranges: Other ranges. Default: those of this tuner.
            **changes: Options of `HyperparameterTuner` to change. The others stay as they are.
        """
        kind = WarmStartTypes.TRANSFER_LEARNING
        tuner = self._warm_start_tuner(kind, additional_parents, ranges=hyperparameter_ranges, changes=changes)
        if estimator is not None:
            tuner._first().estimator = estimator
        return tuner

    @classmethod
    def attach(
        cls,
        tuning_job_name: str,
        sagemaker_session: Session | None = None,
        job_details: Description | None = None,
        estimator_cls: str | type[EstimatorBase] | Mapping[str, str | type[EstimatorBase]] | None = None,
    ) -> Self:
        """Return a tuner with the options of an existing tuning job.

        Args:
            tuning_job_name: Name of the tuning job.
            sagemaker_session: The session to use. Default: a new one.
            job_details: The DescribeHyperParameterTuningJob response, if it is known already.
            estimator_cls: The class of the estimator, or its dotted name; for several estimators, by estimator name.
                Default: the class that the job records, if it is one of Trainyard or of the sagemaker SDK.
        """
        session = sagemaker_session or Session()
        job = TuningJobHandle(session.api, tuning_job_name)
        description = job_details or job.describe()
        tags = session.api.call("sagemaker", "ListTags", ResourceArn=description["HyperParameterTuningJobArn"])["Tags"]
        algorithms = {
            definition.get("DefinitionName", _ONLY): _algorithm(definition, description, session, estimator_cls)
            for definition in definitions_of(description)
        }
        tuner = cls._from_algorithms(algorithms, _options_of(description, tags))
        tuner.latest_tuning_job = job
        return tuner

    @classmethod
    def from_training_jobs(
        cls,
        training_jobs: Sequence[str] | str,
        objective_metric_name: str,
        hyperparameter_ranges: Ranges,
        objective_type: str = "Maximize",
        *,
        tuning_job_name: str | None = None,
        sagemaker_session: Session | None = None,
    ) -> Self:
        """Create an ended tuning job from ended training jobs, so that other tuning jobs can learn from it.

        The training jobs stay unchanged. Every hyperparameter that differs among them needs a range.

        Args:
            training_jobs: Names of the training jobs, or one prefix of their names.
            objective_metric_name: Name of the metric to optimize.
            hyperparameter_ranges: The ranges by hyperparameter name.
            objective_type: `Maximize` or `Minimize`.
            tuning_job_name: Name of the tuning job. Default: derived from the name of the first training job.
            sagemaker_session: The session to use. Default: a new one.

        Returns:
            A tuner attached to the new tuning job.
        """
        session = sagemaker_session or Session()
        name = import_jobs(
            session.api,
            training_jobs,
            name=tuning_job_name,
            objective={"MetricName": objective_metric_name, "Type": objective_type},
            ranges=hyperparameter_ranges,
        )
        return cls.attach(name, session)

    @property
    def estimator(self) -> EstimatorBase | None:
        """The single unnamed estimator; None if the estimators have names."""
        only = self._algorithms.get(_ONLY)
        return only.estimator if only else None

    @property
    def estimator_dict(self) -> dict[str, EstimatorBase] | None:
        """The estimators by name; None for a single unnamed estimator."""
        named = {name: algorithm.estimator for name, algorithm in self._algorithms.items() if name}
        return named or None

    @property
    def objective_metric_name(self) -> str | None:
        """The metric to optimize; None if the estimators have names."""
        only = self._algorithms.get(_ONLY)
        return only.objective_metric_name if only else None

    @property
    def metric_definitions(self) -> MetricDefinitions | None:
        """The metric definitions; None if the estimators have names."""
        only = self._algorithms.get(_ONLY)
        return only.metric_definitions if only else None

    def hyperparameter_ranges(self) -> Shape | None:
        """Return the ranges in the form of the SageMaker API; None if the estimators have names."""
        only = self._algorithms.get(_ONLY)
        return range_shapes(only.ranges, is_json=only.is_json) if only else None

    def hyperparameter_ranges_dict(self) -> dict[str, Shape] | None:
        """Return the ranges by estimator name; None for a single unnamed estimator."""
        named = {
            name: range_shapes(each.ranges, is_json=each.is_json) for name, each in self._algorithms.items() if name
        }
        return named or None

    @property
    def sagemaker_session(self) -> Session:
        """The session of the first estimator."""
        return self._first().estimator.session

    @classmethod
    def _from_algorithms(cls, algorithms: Mapping[str, Algorithm], options: TuningKeywords) -> Self:
        (name, first), *others = algorithms.items()
        tuner = cls(
            first.estimator,
            first.objective_metric_name,
            first.ranges,
            first.metric_definitions,
            estimator_name=name or None,
            hyperparameters_to_keep_static=first.static_names,
            **options,
        )
        tuner._first().instance_configs = first.instance_configs
        for key, algorithm in others:
            tuner._add(key, algorithm)
        return tuner

    def _add(self, name: str, algorithm: Algorithm) -> None:
        static_names = algorithm.static_names
        if not algorithm.ranges and not self.autotune:
            raise InvalidRequest("hyperparameter_ranges is empty; give at least one range, or autotune=True.")
        if static_names is not None and not self.autotune:
            raise InvalidRequest("hyperparameters_to_keep_static needs autotune=True; add it, or leave the names out.")
        if len(set(static_names or ())) < len(static_names or ()):
            raise InvalidRequest("hyperparameters_to_keep_static has a name twice; remove one of them.")
        self._algorithms[name] = algorithm

    def _first(self) -> Algorithm:
        return next(iter(self._algorithms.values()))

    def _latest(self) -> TuningJobHandle:
        if self.latest_tuning_job is None:
            raise InvalidRequest("This tuner has no tuning job yet; call fit first.")
        return self.latest_tuning_job

    def _best(self) -> Description:
        description = self._latest().describe()
        if "BestTrainingJob" not in description:
            name, status = description["HyperParameterTuningJobName"], description["HyperParameterTuningJobStatus"]
            raise InvalidRequest(
                f'Tuning job "{name}" is {status} and has no best training job: none has reported the objective yet.'
            )
        best: Description = description["BestTrainingJob"]
        return best

    def _base_name(self) -> str:
        return self.base_tuning_job_name or base_of_image(self._first().estimator.training_image_uri())

    def _inputs_of(self, name: str, inputs: Any) -> Inputs | None:
        """Return the inputs of one estimator; for several estimators, `inputs` has them by name."""
        if name == _ONLY or inputs is None:
            return inputs  # type: ignore[no-any-return]
        _require_names("inputs", inputs, list(self._algorithms))
        return inputs.get(name)  # type: ignore[no-any-return]

    def _has_metadata(self, name: str, given: bool | Mapping[str, bool] | None) -> bool:
        if not isinstance(given, Mapping):
            return bool(given)
        _require_names("include_cls_metadata", given, list(self._algorithms))
        return given.get(name, False)

    def _warm_start_tuner(
        self,
        kind: WarmStartTypes,
        additional_parents: Iterable[str] | None,
        *,
        ranges: Ranges | None,
        changes: TuningKeywords,
    ) -> Self:
        if len(self._algorithms) > 1:
            raise InvalidRequest("A tuning job over several estimators cannot be the parent of another.")
        options = _keywords(self) | changes
        options["warm_start_config"] = WarmStartConfig(kind, {self._latest().name, *(additional_parents or ())})
        ((name, own),) = self._algorithms.items()
        algorithm = Algorithm(
            own.estimator,
            own.objective_metric_name,
            own.ranges if ranges is None else ranges,
            own.metric_definitions,
            own.static_names,
            own.instance_configs,
        )
        return self._from_algorithms({name: algorithm}, options)


def create_identical_dataset_and_algorithm_tuner(
    parent: str, additional_parents: Iterable[str] | None = None, sagemaker_session: Session | None = None
) -> HyperparameterTuner:
    """Return a tuner that learns from a tuning job, for the same data and the same algorithm.

    Args:
        parent: Name of the tuning job.
        additional_parents: Names of further tuning jobs to learn from.
        sagemaker_session: The session to use. Default: a new one.
    """
    attached = HyperparameterTuner.attach(parent, sagemaker_session)
    return attached.identical_dataset_and_algorithm_tuner(additional_parents)


def create_transfer_learning_tuner(
    parent: str,
    additional_parents: Iterable[str] | None = None,
    estimator: EstimatorBase | None = None,
    sagemaker_session: Session | None = None,
) -> HyperparameterTuner:
    """Return a tuner that learns from a tuning job, for other data or another algorithm.

    Args:
        parent: Name of the tuning job.
        additional_parents: Names of further tuning jobs to learn from.
        estimator: Another estimator. Default: that of the tuning job.
        sagemaker_session: The session to use. Default: a new one.
    """
    attached = HyperparameterTuner.attach(parent, sagemaker_session)
    return attached.transfer_learning_tuner(additional_parents, estimator)


def _names_of(estimators: Mapping[str, EstimatorBase]) -> list[str]:
    if not estimators or not all(estimators):
        raise InvalidRequest("estimator_dict must have at least one estimator, each with a name.")
    return sorted(estimators)


def _require_names(name: str, given: Any, names: Collection[str], *, all_of_them: bool = False) -> None:
    """Raise InvalidRequest when the keys of an argument are not the names of the estimators."""
    if given is None and not all_of_them:
        return
    known = ", ".join(names)
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise InvalidRequest(f"{name} must be a mapping with the names of the estimators: {known}.")
    missing = sorted(set(names) - set(given))
    if all_of_them and missing:
        raise InvalidRequest(f"{name} has nothing for {', '.join(missing)}; the estimators are {known}.")


def _require_empty(estimator_kwargs: Mapping[str, Mapping[str, Any]] | None) -> None:
    for name, more in (estimator_kwargs or {}).items():
        if more:
            raise InvalidRequest(f'estimator_kwargs has {", ".join(more)} for "{name}"; no estimator takes these.')


def _keywords(options: TuningOptions) -> TuningKeywords:
    found: TuningKeywords = {}
    for field in fields(TuningOptions):
        found[field.name] = getattr(options, field.name)  # type: ignore[literal-required]
    return found


def _algorithm(
    definition: Description,
    description: Description,
    session: Session,
    estimator_cls: str | type[EstimatorBase] | Mapping[str, str | type[EstimatorBase]] | None,
) -> Algorithm:
    """Return one algorithm of a described tuning job."""
    config, name = description["HyperParameterTuningJobConfig"], definition.get("DefinitionName", _ONLY)
    given = estimator_cls.get(name) if isinstance(estimator_cls, Mapping) else estimator_cls
    kind = _class_of(definition, given)
    ranges = definition.get("HyperParameterRanges") or config.get("ParameterRanges", {})
    free = {each["Name"]: each["ValueHint"] for each in ranges.get("AutoParameters", ())}
    estimator = kind.from_job_desc(_as_training_job(definition, free), session)
    static = [name for name in estimator.hyperparameters() if name not in free]
    objective = definition.get("TuningObjective") or config["HyperParameterTuningJobObjective"]
    resources = definition.get("HyperParameterTuningResourceConfig", {})
    return Algorithm(
        estimator,
        objective["MetricName"],
        _ranges_of(ranges, is_json=isinstance(estimator, Framework)),
        definition["AlgorithmSpecification"].get("MetricDefinitions") or None,
        static_names=static if _is_autotuned(description) else None,
        instance_configs=[InstanceConfig.from_job_desc(each) for each in resources.get("InstanceConfigs", ())] or None,
    )


def _class_of(definition: Description, given: str | type[EstimatorBase] | None) -> type[EstimatorBase]:
    """Return the given class, else the class that the tuning job records if it is one of Trainyard or sagemaker.

    Any other class is imported only if the caller names it, because anyone may have written the description.
    """
    if isinstance(given, str):
        module, _, name = given.rpartition(".")
        found = _FRAMEWORKS.get(name) if module.startswith("sagemaker") else None
        kind: type[EstimatorBase] = found or getattr(importlib.import_module(module), name)
        return kind
    recorded = hyperparameter(definition.get("StaticHyperParameters", {}).get(ESTIMATOR_CLASS, '""'))
    return given or _FRAMEWORKS.get(recorded, Estimator)


def _as_training_job(definition: Description, free: Mapping[str, str]) -> Shape:
    """Return the definition in the form of a training job description; `free` are the autotuned hyperparameters."""
    static: Mapping[str, str] = definition.get("StaticHyperParameters", {})
    given = definition.get("HyperParameterTuningResourceConfig", {})
    instances = (given.get("InstanceConfigs") or [given])[0]
    resources = definition.get("ResourceConfig") or {"VolumeSizeInGB": 30, **given, **instances}
    own = {name: text for name, text in (*static.items(), *free.items()) if name not in TUNING_HYPERPARAMETERS}
    return {**definition, "TrainingJobName": "", "HyperParameters": own, "ResourceConfig": resources}


def _is_autotuned(description: Description) -> bool:
    return bool(description.get("Autotune", {}).get("Mode") == "Enabled")


def _ranges_of(ranges: Description, *, is_json: bool) -> dict[str, ParameterRange]:
    """Return the ranges of a description. It has the categorical values of a framework as JSON."""
    found: dict[str, ParameterRange] = {}
    for shape in ranges.get("ContinuousParameterRanges", ()):
        ends = float(shape["MinValue"]), float(shape["MaxValue"])
        found[shape["Name"]] = ContinuousParameter(*ends, shape.get("ScalingType", "Auto"))
    for shape in ranges.get("IntegerParameterRanges", ()):
        bounds = int(shape["MinValue"]), int(shape["MaxValue"])
        found[shape["Name"]] = IntegerParameter(*bounds, shape.get("ScalingType", "Auto"))
    for shape in ranges.get("CategoricalParameterRanges", ()):
        values = [hyperparameter(value) for value in shape["Values"]] if is_json else shape["Values"]
        found[shape["Name"]] = CategoricalParameter(list(values))
    return found


def _options_of(description: Description, tags: Sequence[Mapping[str, str]]) -> TuningKeywords:
    config, own_tags = description["HyperParameterTuningJobConfig"], {tag["Key"]: tag["Value"] for tag in tags}
    limits, completion = config["ResourceLimits"], config.get("TuningJobCompletionCriteria")
    objective = config.get("HyperParameterTuningJobObjective") or definitions_of(description)[0]["TuningObjective"]
    strategy = config.get("StrategyConfig")
    is_curve = own_tags.pop(EARLY_STOPPING_TAG, None) == CURVE
    return {
        "strategy": config["Strategy"],
        "objective_type": objective["Type"],
        "max_jobs": limits.get("MaxNumberOfTrainingJobs"),
        "max_parallel_jobs": limits["MaxParallelTrainingJobs"],
        "max_runtime_in_seconds": limits.get("MaxRuntimeInSeconds"),
        "base_tuning_job_name": base_of_study(description["HyperParameterTuningJobName"]),
        "warm_start_config": WarmStartConfig.from_job_desc(description.get("WarmStartConfig")),
        "strategy_config": StrategyConfig.from_job_desc(strategy) if strategy else None,
        "completion_criteria_config": completion and TuningJobCompletionCriteriaConfig.from_job_desc(completion),
        "early_stopping_type": "Curve" if is_curve else config.get("TrainingJobEarlyStoppingType", "Off"),
        "random_seed": config.get("RandomSeed"),
        "autotune": _is_autotuned(description),
        "prune_on": own_tags.pop(PRUNE_ON_TAG, "").split(),
        "tags": own_tags,
    }
