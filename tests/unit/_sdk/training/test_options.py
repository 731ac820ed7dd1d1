import inspect
import re
from dataclasses import fields

import pytest

from trainyard._sdk.training.options import POSITIONAL, TrainingOptions
from trainyard.estimator import Estimator
from trainyard.pytorch import PyTorch
from trainyard.tensorflow import TensorFlow


def test_every_option_is_described() -> None:
    described = re.findall(r"^    (\w+): ", inspect.getdoc(TrainingOptions) or "", re.MULTILINE)
    assert described == [field.name for field in fields(TrainingOptions)]


def test_an_estimator_takes_options_by_position_in_the_order_of_the_sagemaker_sdk() -> None:
    names = list(inspect.signature(Estimator).parameters)
    assert names[:5] == ["image_uri", "role", "instance_count", "instance_type", "keep_alive_period_in_seconds"]
    assert tuple(names[1 : len(POSITIONAL) + 1]) == POSITIONAL
    assert POSITIONAL.index("hyperparameters") == POSITIONAL.index("sagemaker_session") + 1
    made = Estimator("image", "role", 2, "ml.m5.large", None, 40)
    assert (made.role, made.instance_count, made.instance_type, made.volume_size) == ("role", 2, "ml.m5.large", 40)


@pytest.mark.parametrize("kind", [Estimator, PyTorch, TensorFlow])
def test_the_signature_of_an_estimator_has_every_option(kind: type) -> None:
    assert {field.name for field in fields(TrainingOptions)} <= set(inspect.signature(kind).parameters)


def test_an_unknown_argument_names_the_class_that_was_called_and_the_nearest_argument() -> None:
    message = 'PyTorch() got an unexpected keyword argument "instance_typ"; did you mean "instance_type"?'
    with pytest.raises(TypeError, match=re.escape(message)):
        PyTorch("a.py", instance_typ="ml.m5.large")


def test_an_unknown_argument_of_a_subclass_names_the_subclass() -> None:
    class Mine(PyTorch):
        pass

    with pytest.raises(TypeError, match=re.escape('Mine() got an unexpected keyword argument "zzz"')):
        Mine("a.py", zzz=1)


def test_the_nearest_argument_may_be_one_of_the_class_itself() -> None:
    with pytest.raises(TypeError, match='did you mean "framework_version"'):
        TensorFlow(entry_point="a.py", framework_versio="2.19")


def test_an_argument_cannot_be_given_by_position_and_by_name() -> None:
    with pytest.raises(TypeError, match=re.escape('Estimator() got multiple values for argument "role"')):
        Estimator("image", "role", role="other")


def test_too_many_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="takes at most 26 positional arguments, but 27 were given"):
        Estimator("image", *[None] * 26)
