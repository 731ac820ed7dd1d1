"""Tuning as one object: what to search, in which ranges, for which objective; `fit` makes a tuning job of it."""

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self, Unpack

from trainyard.adopting import adopt
from trainyard.analytics import HyperparameterTuningJobAnalytics
from trainyard.estimator import ESTIMATOR_CLASS, OF_TUNING, Estimator, EstimatorBase, Framework
from trainyard.following import Description
from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Inputs, Shape
from trainyard.job_names import base_of_image, base_of_study, create_study_named
from trainyard.parameter import (
    CategoricalParameter,
    ContinuousParameter,
    IntegerParameter,
    ParameterRange,
)
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.tensorflow import TensorFlow
from trainyard.training_job import hyperparameter
from trainyard.training_request import Tags
from trainyard.tuning_configs import (
    HyperbandStrategyConfig,
    InstanceConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
)
from trainyard.tuning_job import TuningJob
from trainyard.tuning_request import (
    CURVE,
    EARLY_STOPPING_TAG,
    PRUNE_ON_TAG,
    Algorithm,
    Asked,
    LaterTuningKeywords,
    MetricDefinitions,
    Ranges,
    TuningKeywords,
    TuningOptions,
    range_shapes,
    require_words,
    tuning_request,
)
from trainyard.tuning_text import definitions_of

if TYPE_CHECKING:
    from trainyard.tuning_plots import Plots

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

_ONLY = ""  # the name of an algorithm that has none, as the only one may
_FRAMEWORKS: dict[str, type[EstimatorBase]] = {"PyTorch": PyTorch, "TensorFlow": TensorFlow, "Estimator": Estimator}


class HyperparameterTuner(TuningOptions):
    """Searches the hyperparameters with which the training jobs of an estimator reach the best objective.

    Making one asks the yard nothing; `fit` does. The order of the parameters is that of the sagemaker SDK.

    Beyond it, `early_stopping_type` may be "Curve", which ends the training jobs whose learning curves lead nowhere;
    `prune_on` names rules of the debugger that end a training job when they find something; `metric_definitions`
    default to those of the estimator; and without `max_jobs`, another limit that was given is the only one.
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
        require_words(self)
        self.latest_tuning_job: TuningJob | None = None
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
        """A tuner of several estimators, each with a name, an objective and ranges of its own."""
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
        return cls._of_algorithms(algorithms, keywords)

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
        """Make a tuning job, and wait for its end unless told not to, with a line for every training job that ends.

        Of a tuner of several estimators, `inputs` and `include_cls_metadata` are by their names. Failed raises
        UnexpectedStatusException with the reason.
        """
        require_words(self)
        _require_no_more(estimator_kwargs)

        def create(name: str) -> None:
            asked = [
                Asked(
                    key,
                    algorithm,
                    algorithm.estimator.request_of(f"{name}-{key}" if key else name, self._inputs_of(key, inputs)),
                    has_class_metadata=self._has_metadata(key, include_cls_metadata),
                )
                for key, algorithm in self._algorithms.items()
            ]
            request = tuning_request(name, self, asked)
            self.sagemaker_session.api.call("sagemaker", "CreateHyperParameterTuningJob", **request)

        if job_name:
            create(job_name)
        name = job_name or create_study_named(self._base_name(), create)
        self.latest_tuning_job = TuningJob(self.sagemaker_session.api, name)
        if wait:
            self.latest_tuning_job.wait(logs)

    def wait(self) -> None:
        """Wait until the latest tuning job has ended."""
        self._latest().wait()

    def describe(self) -> dict[str, Any]:
        """What DescribeHyperParameterTuningJob answers of the latest tuning job."""
        return self._latest().describe()

    def stop_tuning_job(self) -> None:
        """Stop the latest tuning job and those of its training jobs that run."""
        self._latest().stop()

    stop = stop_tuning_job

    def analytics(self) -> HyperparameterTuningJobAnalytics:
        """What came of the latest tuning job, as a table."""
        return HyperparameterTuningJobAnalytics(self._latest().name, self.sagemaker_session)

    @property
    def plots(self) -> "Plots":
        """Charts of the latest tuning job; they need Bokeh."""
        from trainyard.tuning_plots import Plots

        return Plots.of(self.analytics())

    def best_training_job(self) -> str:
        """The name of the best training job of the latest tuning job."""
        name: str = self._best()["TrainingJobName"]
        return name

    def best_estimator(self, best_training_job: Description | None = None) -> EstimatorBase:
        """The estimator of the best training job, or of the one given, with its hyperparameters and its model."""
        best = best_training_job or self._best()
        algorithm = self._algorithms.get(best.get("TrainingJobDefinitionName", _ONLY)) or self._first()
        return type(algorithm.estimator).attach(best["TrainingJobName"], self.sagemaker_session)

    def deploy(self, *_arguments: Any, **_options: Any) -> None:
        """Serve the best model, which yards cannot do yet."""
        raise InvalidRequest(
            "Yards do not host models yet; best_estimator().model_data is where the best model is, to be served "
            "elsewhere."
        )

    def override_resource_config(
        self, instance_configs: Sequence[InstanceConfig] | Mapping[str, Sequence[InstanceConfig]] | None
    ) -> None:
        """Give the training jobs other instances than their estimators name; None takes that back."""
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
        """A tuner that starts from what the latest tuning job found, on the same data with the same algorithm.

        It may have other ranges, another `max_jobs` and so on; what is not given is as it was.
        """
        kind = WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM
        return self._warm_started(kind, additional_parents, ranges=hyperparameter_ranges, changes=changes)

    def transfer_learning_tuner(
        self,
        additional_parents: Iterable[str] | None = None,
        estimator: EstimatorBase | None = None,
        *,
        hyperparameter_ranges: Ranges | None = None,
        **changes: Unpack[TuningKeywords],
    ) -> Self:
        """A tuner that starts from what the latest tuning job found, whose data or algorithm may have changed."""
        kind = WarmStartTypes.TRANSFER_LEARNING
        tuner = self._warm_started(kind, additional_parents, ranges=hyperparameter_ranges, changes=changes)
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
        """The tuner that could have made a tuning job. Its estimators are of the classes given, else of those known."""
        session = sagemaker_session or Session()
        job = TuningJob(session.api, tuning_job_name)
        description = job_details or job.describe()
        tags = session.api.call("sagemaker", "ListTags", ResourceArn=description["HyperParameterTuningJobArn"])["Tags"]
        algorithms = {
            definition.get("DefinitionName", _ONLY): _algorithm(definition, description, session, estimator_cls)
            for definition in definitions_of(description)
        }
        tuner = cls._of_algorithms(algorithms, _options_of(description, tags))
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
        """A tuner attached to an ended tuning job that is made of ended training jobs, for others to start from.

        The training jobs are given by their names, or all by one prefix; they stay as they are. What differs among
        them must have a range.
        """
        session = sagemaker_session or Session()
        name = adopt(
            session.api,
            training_jobs,
            name=tuning_job_name,
            objective={"MetricName": objective_metric_name, "Type": objective_type},
            ranges=hyperparameter_ranges,
        )
        return cls.attach(name, session)

    @property
    def estimator(self) -> EstimatorBase | None:
        """The estimator, where there is one without a name."""
        only = self._algorithms.get(_ONLY)
        return only.estimator if only else None

    @property
    def estimator_dict(self) -> dict[str, EstimatorBase] | None:
        """The estimators by their names, where they have some."""
        named = {name: algorithm.estimator for name, algorithm in self._algorithms.items() if name}
        return named or None

    @property
    def objective_metric_name(self) -> str | None:
        """The objective of an estimator without a name."""
        only = self._algorithms.get(_ONLY)
        return only.objective_metric_name if only else None

    @property
    def metric_definitions(self) -> MetricDefinitions | None:
        """The metrics of an estimator without a name."""
        only = self._algorithms.get(_ONLY)
        return only.metric_definitions if only else None

    def hyperparameter_ranges(self) -> Shape | None:
        """The ranges of an estimator without a name, as a request has them."""
        only = self._algorithms.get(_ONLY)
        return range_shapes(only.ranges, is_json=only.is_json) if only else None

    def hyperparameter_ranges_dict(self) -> dict[str, Shape] | None:
        """The ranges by the names of the estimators, where they have some."""
        named = {
            name: range_shapes(each.ranges, is_json=each.is_json) for name, each in self._algorithms.items() if name
        }
        return named or None

    @property
    def sagemaker_session(self) -> Session:
        """The session of the first estimator."""
        return self._first().estimator.session

    @classmethod
    def _of_algorithms(cls, algorithms: Mapping[str, Algorithm], options: TuningKeywords) -> Self:
        (name, first), *others = algorithms.items()
        tuner = cls(
            first.estimator,
            first.objective_metric_name,
            first.ranges,
            first.metric_definitions,
            estimator_name=name or None,
            hyperparameters_to_keep_static=first.kept_static,
            **options,
        )
        tuner._first().instance_configs = first.instance_configs
        for key, algorithm in others:
            tuner._add(key, algorithm)
        return tuner

    def _add(self, name: str, algorithm: Algorithm) -> None:
        kept = algorithm.kept_static
        if not algorithm.ranges and not self.autotune:
            raise InvalidRequest("There are no hyperparameter_ranges to search; give some, or autotune=True.")
        if kept is not None and not self.autotune:
            raise InvalidRequest("hyperparameters_to_keep_static is for autotune=True alone; leave one of them out.")
        if len(set(kept or ())) < len(kept or ()):
            raise InvalidRequest("hyperparameters_to_keep_static has a name twice; leave one of them out.")
        self._algorithms[name] = algorithm

    def _first(self) -> Algorithm:
        return next(iter(self._algorithms.values()))

    def _latest(self) -> TuningJob:
        if self.latest_tuning_job is None:
            raise InvalidRequest("This tuner has no tuning job yet; call fit first.")
        return self.latest_tuning_job

    def _best(self) -> Description:
        description = self._latest().describe()
        if "BestTrainingJob" not in description:
            name, status = description["HyperParameterTuningJobName"], description["HyperParameterTuningJobStatus"]
            raise InvalidRequest(
                f'Tuning job "{name}" is {status} and has no best training job: none has measured the objective yet.'
            )
        best: Description = description["BestTrainingJob"]
        return best

    def _base_name(self) -> str:
        return self.base_tuning_job_name or base_of_image(self._first().estimator.training_image_uri())

    def _inputs_of(self, name: str, inputs: Any) -> Inputs | None:
        """The inputs of one estimator; those of several are by their names."""
        if name == _ONLY or inputs is None:
            return inputs  # type: ignore[no-any-return]
        _require_names("inputs", inputs, list(self._algorithms))
        return inputs.get(name)  # type: ignore[no-any-return]

    def _has_metadata(self, name: str, given: bool | Mapping[str, bool] | None) -> bool:
        if not isinstance(given, Mapping):
            return bool(given)
        _require_names("include_cls_metadata", given, list(self._algorithms))
        return given.get(name, False)

    def _warm_started(
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
            own.kept_static,
            own.instance_configs,
        )
        return self._of_algorithms({name: algorithm}, options)


def create_identical_dataset_and_algorithm_tuner(
    parent: str, additional_parents: Iterable[str] | None = None, sagemaker_session: Session | None = None
) -> HyperparameterTuner:
    """A tuner that starts from what a tuning job found, on the same data with the same algorithm."""
    attached = HyperparameterTuner.attach(parent, sagemaker_session)
    return attached.identical_dataset_and_algorithm_tuner(additional_parents)


def create_transfer_learning_tuner(
    parent: str,
    additional_parents: Iterable[str] | None = None,
    estimator: EstimatorBase | None = None,
    sagemaker_session: Session | None = None,
) -> HyperparameterTuner:
    """A tuner that starts from what a tuning job found, whose data or algorithm may have changed."""
    attached = HyperparameterTuner.attach(parent, sagemaker_session)
    return attached.transfer_learning_tuner(additional_parents, estimator)


def _names_of(estimators: Mapping[str, EstimatorBase]) -> list[str]:
    if not estimators or not all(estimators):
        raise InvalidRequest("estimator_dict must have at least one estimator, each with a name.")
    return sorted(estimators)


def _require_names(name: str, given: Any, names: Collection[str], *, all_of_them: bool = False) -> None:
    """InvalidRequest when an argument is not by the names of the estimators."""
    if given is None and not all_of_them:
        return
    known = ", ".join(names)
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise InvalidRequest(f"{name} must be by the names of the estimators, which are {known}.")
    missing = sorted(set(names) - set(given))
    if all_of_them and missing:
        raise InvalidRequest(f"{name} has nothing for {', '.join(missing)}; the estimators are {known}.")


def _require_no_more(estimator_kwargs: Mapping[str, Mapping[str, Any]] | None) -> None:
    for name, more in (estimator_kwargs or {}).items():
        if more:
            raise InvalidRequest(f'estimator_kwargs has {", ".join(more)} for "{name}", which no estimator takes.')


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
    """One algorithm of a described tuning job."""
    config, name = description["HyperParameterTuningJobConfig"], definition.get("DefinitionName", _ONLY)
    given = estimator_cls.get(name) if isinstance(estimator_cls, Mapping) else estimator_cls
    kind = _class_of(definition, given)
    ranges = definition.get("HyperParameterRanges") or config.get("ParameterRanges", {})
    free = {each["Name"]: each["ValueHint"] for each in ranges.get("AutoParameters", ())}
    estimator = kind.described(_as_training_job(definition, free), session)
    static = [name for name in estimator.hyperparameters() if name not in free]
    objective = definition.get("TuningObjective") or config["HyperParameterTuningJobObjective"]
    resources = definition.get("HyperParameterTuningResourceConfig", {})
    return Algorithm(
        estimator,
        objective["MetricName"],
        _ranges_of(ranges, is_json=isinstance(estimator, Framework)),
        definition["AlgorithmSpecification"].get("MetricDefinitions") or None,
        kept_static=static if _is_autotuned(description) else None,
        instance_configs=[InstanceConfig.from_job_desc(each) for each in resources.get("InstanceConfigs", ())] or None,
    )


def _class_of(definition: Description, given: str | type[EstimatorBase] | None) -> type[EstimatorBase]:
    """The class given, else the one that the tuning job was made with, if it is ours or of the sagemaker SDK.

    A class of someone's own is only imported when it is named here, since a description may come from anyone.
    """
    if isinstance(given, str):
        module, _, name = given.rpartition(".")
        found = _FRAMEWORKS.get(name) if module.startswith("sagemaker") else None
        kind: type[EstimatorBase] = found or getattr(importlib.import_module(module), name)
        return kind
    told = hyperparameter(definition.get("StaticHyperParameters", {}).get(ESTIMATOR_CLASS, '""'))
    return given or _FRAMEWORKS.get(told, Estimator)


def _as_training_job(definition: Description, free: Mapping[str, str]) -> Shape:
    """The definition as the description of a training job says it; `free` is what Autotune is to find ranges for."""
    static: Mapping[str, str] = definition.get("StaticHyperParameters", {})
    given = definition.get("HyperParameterTuningResourceConfig", {})
    instances = (given.get("InstanceConfigs") or [given])[0]
    resources = definition.get("ResourceConfig") or {"VolumeSizeInGB": 30, **given, **instances}
    own = {name: text for name, text in (*static.items(), *free.items()) if name not in OF_TUNING}
    return {**definition, "TrainingJobName": "", "HyperParameters": own, "ResourceConfig": resources}


def _is_autotuned(description: Description) -> bool:
    return bool(description.get("Autotune", {}).get("Mode") == "Enabled")


def _ranges_of(ranges: Description, *, is_json: bool) -> dict[str, ParameterRange]:
    """Ranges of a description; categorical values of a framework are JSON there, and texts here."""
    found: dict[str, ParameterRange] = {}
    for told in ranges.get("ContinuousParameterRanges", ()):
        ends = float(told["MinValue"]), float(told["MaxValue"])
        found[told["Name"]] = ContinuousParameter(*ends, told.get("ScalingType", "Auto"))
    for told in ranges.get("IntegerParameterRanges", ()):
        bounds = int(told["MinValue"]), int(told["MaxValue"])
        found[told["Name"]] = IntegerParameter(*bounds, told.get("ScalingType", "Auto"))
    for told in ranges.get("CategoricalParameterRanges", ()):
        values = [hyperparameter(value) for value in told["Values"]] if is_json else told["Values"]
        found[told["Name"]] = CategoricalParameter(list(values))
    return found


def _options_of(description: Description, tags: Sequence[Mapping[str, str]]) -> TuningKeywords:
    config, told = description["HyperParameterTuningJobConfig"], {tag["Key"]: tag["Value"] for tag in tags}
    limits, completion = config["ResourceLimits"], config.get("TuningJobCompletionCriteria")
    objective = config.get("HyperParameterTuningJobObjective") or definitions_of(description)[0]["TuningObjective"]
    strategy = config.get("StrategyConfig")
    is_curve = told.pop(EARLY_STOPPING_TAG, None) == CURVE
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
        "prune_on": told.pop(PRUNE_ON_TAG, "").split(),
        "tags": told,
    }
