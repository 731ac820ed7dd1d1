"""The errors of hooks, trials and rules, under the names that scripts catch."""

from .core.modes import ModeKeys


class SMDebugError(Exception):
    """The base of all errors of this package."""


class SMDebugCustomerError(SMDebugError):
    """An error in the script rather than in this package."""


class SMDebugTypeError(SMDebugError, TypeError):
    """A value has a type that the call does not accept."""


class SMDebugRuntimeError(SMDebugError, RuntimeError):
    """The call is not possible in the current state."""


class SMDebugNotImplementedError(SMDebugError, NotImplementedError):
    """The call is not supported here."""


class SMDebugValueError(SMDebugError, ValueError):
    """A value has the right type, but the call does not accept it."""


class InvalidCollectionConfiguration(SMDebugError):
    """A custom collection selects no tensors, neither by regex nor by name."""

    def __init__(self, c_name: str) -> None:
        super().__init__(
            f'The collection "{c_name}" has no tensors: set its include_regex or tensor_names, or call include().'
        )
        self.c_name = c_name


class StepNotYetAvailable(SMDebugError):
    """The training has not reached the step yet."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(f"Step {step} of mode {mode.name} is not available yet.")
        self.step, self.mode = step, mode


class StepUnavailable(SMDebugError):
    """The training passed the step without saving it."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(f"Step {step} of mode {mode.name} was not saved.")
        self.step, self.mode = step, mode


class NoMoreData(SMDebugError):
    """The training ended before the step."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int) -> None:
        super().__init__(f"The training ended at step {last_step} of mode {mode.name}, before step {step}.")
        self.step, self.mode, self.last_step, self.msg = step, mode, last_step, self.args[0]


class NoMoreProfilerData(SMDebugError):
    """The training ended before the timestamp."""

    def __init__(self, timestamp: float) -> None:
        super().__init__(f"The training ended before the timestamp {timestamp}.")
        self.timestamp, self.msg = timestamp, self.args[0]


class TensorUnavailable(SMDebugError):
    """No step has a tensor of this name."""

    def __init__(self, tname: str) -> None:
        super().__init__(f'No tensor "{tname}" was saved.')
        self.tname = tname


class TensorUnavailableForStep(SMDebugError):
    """The step is available, but without the values of this tensor."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL, has_reductions: bool = False) -> None:
        instead = " Its reductions were: use reduction_value." if has_reductions else ""
        super().__init__(f'The tensor "{tname}" was not saved at step {step} of mode {mode.name}.{instead}')
        self.tname, self.step, self.mode, self.has_reductions = tname, step, mode, has_reductions


class ShapeUnavailableForStep(SMDebugError):
    """The step is available, but without the shape of this tensor."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(f'The shape of "{tname}" was not saved at step {step} of mode {mode.name}.')
        self.tname, self.step, self.mode = tname, step, mode


class InvalidWorker(SMDebugError):
    """No worker of this name saved the tensor at the step."""

    def __init__(self, worker: str) -> None:
        super().__init__(f'The worker "{worker}" has saved nothing here; trial.workers() lists those that have.')
        self.worker = worker


class MissingCollectionFiles(SMDebugError):
    """The training has ended, and some of its workers never wrote their collections."""

    def __init__(self) -> None:
        super().__init__("The training has ended, but not all of its workers wrote their collections.")


class IndexReaderException(SMDebugError):
    """The files at the path cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RuleEvaluationConditionMet(SMDebugError):
    """The condition of a rule is met."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        super().__init__(f"The condition of the rule {rule_name} is met at step {step}.")
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule


class InsufficientInformationForRuleInvocation(SMDebugError):
    """A rule lacks the data it needs."""

    def __init__(self, rule_name: str, message: str) -> None:
        super().__init__(f"The rule {rule_name} cannot be evaluated: {message}")
        self.rule_name, self.message = rule_name, message
