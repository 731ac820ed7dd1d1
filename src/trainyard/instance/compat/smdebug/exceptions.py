"""What goes wrong with hooks, trials and rules, under the names that scripts catch."""

from .core.modes import ModeKeys


class SMDebugError(Exception):
    """Whatever this package raises by itself."""


class SMDebugCustomerError(SMDebugError):
    """A mistake of the script, not of this package."""


class SMDebugTypeError(SMDebugError, TypeError):
    """A value is of a type that the call does not take."""


class SMDebugRuntimeError(SMDebugError, RuntimeError):
    """The call cannot be served as things stand."""


class SMDebugNotImplementedError(SMDebugError, NotImplementedError):
    """The call is not served here."""


class SMDebugValueError(SMDebugError, ValueError):
    """A value is of the right type, but none that the call takes."""


class InvalidCollectionConfiguration(SMDebugError):
    """A collection of the script's own says neither by regex nor by name what is in it."""

    def __init__(self, c_name: str) -> None:
        super().__init__(
            f'The collection "{c_name}" has no tensors: give it an include_regex or tensor_names, or call include().'
        )
        self.c_name = c_name


class StepNotYetAvailable(SMDebugError):
    """The training has not come to the step."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(f"Step {step} of mode {mode.name} is not there yet.")
        self.step, self.mode = step, mode


class StepUnavailable(SMDebugError):
    """The training has passed the step without saving it."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(f"Step {step} of mode {mode.name} was not saved.")
        self.step, self.mode = step, mode


class NoMoreData(SMDebugError):
    """The training has ended before the step."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int) -> None:
        super().__init__(f"The training ended at step {last_step} of mode {mode.name}, before step {step}.")
        self.step, self.mode, self.last_step, self.msg = step, mode, last_step, self.args[0]


class NoMoreProfilerData(SMDebugError):
    """The training has ended before the time."""

    def __init__(self, timestamp: float) -> None:
        super().__init__(f"The training ended before the timestamp {timestamp}.")
        self.timestamp, self.msg = timestamp, self.args[0]


class TensorUnavailable(SMDebugError):
    """No step has a tensor of this name."""

    def __init__(self, tname: str) -> None:
        super().__init__(f'No tensor "{tname}" was saved.')
        self.tname = tname


class TensorUnavailableForStep(SMDebugError):
    """The step is there, but not the values of this tensor."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL, has_reductions: bool = False) -> None:
        instead = " Its reductions were: ask for reduction_value." if has_reductions else ""
        super().__init__(f'The tensor "{tname}" was not saved at step {step} of mode {mode.name}.{instead}')
        self.tname, self.step, self.mode, self.has_reductions = tname, step, mode, has_reductions


class ShapeUnavailableForStep(SMDebugError):
    """The step is there, but not the shape of this tensor."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(f'The shape of "{tname}" was not saved at step {step} of mode {mode.name}.')
        self.tname, self.step, self.mode = tname, step, mode


class InvalidWorker(SMDebugError):
    """No worker of this name has saved the tensor at the step."""

    def __init__(self, worker: str) -> None:
        super().__init__(f'There is nothing of a worker "{worker}" here; trial.workers() names those that there are.')
        self.worker = worker


class MissingCollectionFiles(SMDebugError):
    """The training has ended, and some of its workers never said which collections they have."""

    def __init__(self) -> None:
        super().__init__("The training has ended, and not all of its workers have left their collections.")


class IndexReaderException(SMDebugError):
    """What lies at the path cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RuleEvaluationConditionMet(SMDebugError):
    """A rule found what it looks for."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        super().__init__(f"The rule {rule_name} found what it looks for at step {step}.")
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule


class InsufficientInformationForRuleInvocation(SMDebugError):
    """A rule lacks what it needs to judge."""

    def __init__(self, rule_name: str, message: str) -> None:
        super().__init__(f"The rule {rule_name} cannot judge: {message}")
        self.rule_name, self.message = rule_name, message
