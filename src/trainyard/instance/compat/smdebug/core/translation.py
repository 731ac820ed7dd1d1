"""What trials raise, in the words of scripts."""

from collections.abc import Iterator
from contextlib import contextmanager

from trainyard.formats.tensors import errors
from trainyard.foundation.errors import InvalidRequest

from ..exceptions import (
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    ShapeUnavailableForStep,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from .modes import to_key


@contextmanager
def translated() -> Iterator[None]:
    """Raise what scripts catch in the place of what our trials raise."""
    try:
        yield
    except errors.TensorUnavailable as error:
        raise TensorUnavailable(error.name) from error
    except errors.TensorUnavailableForStep as error:
        key = to_key(error.mode)
        raise TensorUnavailableForStep(error.name, error.step, key, error.has_reductions) from error
    except errors.ShapeUnavailableForStep as error:
        raise ShapeUnavailableForStep(error.name, error.step, to_key(error.mode)) from error
    except errors.StepUnavailable as error:
        raise StepUnavailable(error.step, to_key(error.mode)) from error
    except errors.StepNotYetAvailable as error:
        raise StepNotYetAvailable(error.step, to_key(error.mode)) from error
    except errors.NoMoreData as error:
        raise NoMoreData(error.step, to_key(error.mode), error.last_step) from error
    except errors.MissingCollectionFiles as error:
        raise MissingCollectionFiles from error
    except errors.InvalidWorker as error:
        raise InvalidWorker(error.worker) from error
    except InvalidRequest as error:
        raise SMDebugValueError(str(error)) from error
