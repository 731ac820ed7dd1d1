"""Tells those who observe a training's steps, on the thread that trains, what happens in them."""

from collections.abc import Callable

from trainyard.instance.hook.contract import StepObserver
from trainyard.instance.hook.recording import Recording


class Observers:
    """The observers of a recording. One that fails is noted, and told no more."""

    def __init__(self, recording: Recording) -> None:
        self._observers = list(recording.audience.observers)
        self._note = recording.note

    def __bool__(self) -> bool:
        return bool(self._observers)

    def tell(self, what: Callable[[StepObserver], None]) -> None:
        for observer in list(self._observers):
            try:
                what(observer)
            except Exception as error:  # whatever it is, the training goes on
                self._observers.remove(observer)
                self._note(f"{type(observer).__name__} has failed and sees no more steps: {error!r}.")
