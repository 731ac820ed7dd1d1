"""Modules and names of the `sagemaker` SDK that Trainyard does not have: each says so, and what to use instead."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

_TRAINING_JOB = "run the script as a training job, with trainyard.estimator or `trainyard run`"
_PROCESSOR = "run the script with trainyard.processing.FrameworkProcessor and the estimator of its framework"
_MODEL_FILES = "download estimator.model_data with trainyard.s3.S3Downloader, and load the model in your own program"
_ONE_BY_ONE = "call fit of one estimator after another in a Python program"
_COMPARISON = "name and tag jobs, and compare their trainyard.analytics.TrainingJobAnalytics"
_OWN_TRANSFORMER = "train a model of your own with trainyard.huggingface.HuggingFace"
_OWN_SCRIPT = "train a script of your own, such as with trainyard.sklearn.SKLearn"

# By the name of the module: what to use instead.
INSTEAD = {
    "algorithm": "name an image with trainyard.estimator.Estimator",
    "async_inference": _MODEL_FILES,
    "automl": "search with trainyard.tuner.HyperparameterTuner",
    "aws_batch": "submit the jobs, which wait in the queue of the yard",
    "base_deserializers": _MODEL_FILES,
    "base_predictor": _MODEL_FILES,
    "base_serializers": _MODEL_FILES,
    "batch_inference": _MODEL_FILES,
    "chainer": "train with trainyard.pytorch.PyTorch",
    "clarify": _TRAINING_JOB,
    "collection": _COMPARISON,
    "dataset_definition": "pass data to a job with trainyard.inputs.TrainingInput",
    "deserializers": _MODEL_FILES,
    "djl_inference": _MODEL_FILES,
    "drift_check_baselines": _TRAINING_JOB,
    "explainer": _MODEL_FILES,
    "feature_store": "keep features on S3 and pass them to a job with trainyard.inputs.TrainingInput",
    "hyperparameters": _OWN_TRANSFORMER,
    "inference_recommender": _MODEL_FILES,
    "interactive_apps": "open the dashboard with `trainyard open`",
    "jumpstart": _OWN_TRANSFORMER,
    "lambda_helper": _ONE_BY_ONE,
    "mlflow": _COMPARISON,
    "model_card": _COMPARISON,
    "model_metrics": _COMPARISON,
    "model_monitor": _TRAINING_JOB,
    "model_uris": _MODEL_FILES,
    "modules": "use trainyard.estimator",
    "multidatamodel": _MODEL_FILES,
    "mxnet": "train with trainyard.pytorch.PyTorch",
    "pipeline": _MODEL_FILES,
    "predictor": _MODEL_FILES,
    "predictor_async": _MODEL_FILES,
    "rl": "train with trainyard.pytorch.PyTorch",
    "script_uris": _OWN_TRANSFORMER,
    "serializers": _MODEL_FILES,
    "serve": _MODEL_FILES,
    "serverless": _MODEL_FILES,
    "spark": _TRAINING_JOB,
    "sparkml": _MODEL_FILES,
    "training_compiler": _OWN_TRANSFORMER,
    "transformer": _MODEL_FILES,
    "workflow": _ONE_BY_ONE,
    "wrangler": _TRAINING_JOB,
}

# Names in modules that Trainyard has.
_NAMES_IN_MODULES = {
    "analytics": {"ArtifactAnalytics": _COMPARISON},
    "inputs": dict.fromkeys(("BatchDataCaptureConfig", "CreateModelInput", "TransformInput"), _MODEL_FILES),
    "amazon": dict.fromkeys(
        (
            *("factorization_machines", "ipinsights", "kmeans", "knn", "lda", "linear_learner", "ntm", "object2vec"),
            *("pca", "randomcutforest"),
        ),
        _OWN_SCRIPT,
    ),
}

# Modules that sagemaker splits by framework. In each, the module `estimator` has what the module itself has here, and
# so has `processing` if there is a processor.
FRAMEWORK_MODULES = ("huggingface", "pytorch", "sklearn", "tensorflow", "xgboost")
_FRAMEWORK_PARTS = {"model": _MODEL_FILES, "processing": _PROCESSOR, "serving": _MODEL_FILES}

# Names in sagemaker itself and in the modules of frameworks, such as HuggingFaceModel, by their ends.
_ENDINGS = {"Model": _MODEL_FILES, "ModelPackage": _MODEL_FILES, "Predictor": _MODEL_FILES, "Processor": _PROCESSOR}
_ALGORITHMS = (
    *("FactorizationMachines", "IPInsights", "KMeans", "KNN", "LDA", "LinearLearner", "NTM", "Object2Vec", "PCA"),
    "RandomCutForest",
)
_NAMES = {
    **dict.fromkeys(_ALGORITHMS, _OWN_SCRIPT),
    "AlgorithmEstimator": INSTEAD["algorithm"],
    "AutoML": INSTEAD["automl"],
    "NetworkConfig": "import it from trainyard.network",
}
# Members of estimators and tuners.
_MEMBERS = {
    **dict.fromkeys(("compile_model", "create_model", "deploy", "transformer"), _MODEL_FILES),
    "delete_endpoint": _MODEL_FILES,
}


def refusal_of(name: str) -> str:
    """Return why `trainyard.NAME` does not exist, and what to use instead; empty if sagemaker has no such name.

    NAME is a module or a name in one, such as `processing`, `Model`, `sklearn.processing` or `pytorch.PyTorchModel`.
    """
    instead = _instead_of(name)
    return _refusal(f"sagemaker.{name}", instead) if instead else ""


class LaterMembers:
    """The base of estimators and tuners: members that only those of sagemaker have say so, and what to use instead."""

    # Not for type checkers, to which it would mean that every member exists.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            of = type(self).__name__
            refusal = _refusal(f"{of}.{name} of sagemaker", _MEMBERS[name]) if name in _MEMBERS else ""
            raise AttributeError(refusal or f"'{of}' object has no attribute '{name}'")


def _instead_of(name: str) -> str:
    module, _, last = name.rpartition(".")
    if name in INSTEAD:
        return INSTEAD[name]
    if module and module not in FRAMEWORK_MODULES:
        return _NAMES_IN_MODULES.get(module, {}).get(last, "")
    if module and last in _FRAMEWORK_PARTS:
        return _FRAMEWORK_PARTS[last]
    return _NAMES.get(last) or next((text for ending, text in _ENDINGS.items() if last.endswith(ending)), "")


def _refusal(what: str, instead: str) -> str:
    from trainyard import __version__

    return f"Trainyard {__version__} has no counterpart of {what}. Instead, {instead}."


class LaterModuleFinder:
    """Answers imports of modules that Trainyard does not have. Python asks it only when it has found none itself."""

    @staticmethod
    def find_spec(
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG004 - part of the protocol
        target: ModuleType | None = None,  # noqa: ARG004 - the same
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package == "trainyard" and name in _PART_MODULES:
            return ModuleSpec(fullname, PartLoader())
        if package == "trainyard" and (refusal := refusal_of(name)):
            # Without its name: Python would hide the message of `from trainyard import processing`.
            raise ModuleNotFoundError(refusal)
        return None


class PartLoader(Loader):
    """Makes `trainyard.pytorch.estimator` of what `trainyard.pytorch` exports, as that module is named in sagemaker.

    The same holds for `trainyard.pytorch.processing`.
    """

    def exec_module(self, module: ModuleType) -> None:
        """Copy the exported names."""
        framework = sys.modules[module.__name__.rpartition(".")[0]]
        module.__doc__ = framework.__doc__
        exported = ["__all__", *framework.__all__]
        vars(module).update({name: getattr(framework, name) for name in exported})


# Modules that sagemaker splits where Trainyard has one: each part has all names of the whole.
_LINEAGE_PARTS = ("action", "artifact", "association", "context", "query", "visualizer")
_PART_MODULES = frozenset(
    {
        *(f"{name}.estimator" for name in FRAMEWORK_MODULES),
        *("pytorch.processing", "sklearn.processing"),
        *(f"lineage.{part}" for part in _LINEAGE_PARTS),
    }
)


def install_finder() -> None:
    """Have Python ask for modules that it does not find. A second call does nothing."""
    if LaterModuleFinder not in sys.meta_path:
        sys.meta_path.append(LaterModuleFinder)
