"""A hook that captures the tensors of a training, inside or outside a job.

    import trainyard.hook as th

    hook = th.Hook("/tmp/tensors", collections=["weights", "gradients"])
    hook.watch(model)

From then on every training step writes the statistics of its tensors to the folder, and the values of the collections
that request them. `trainyard.trial.create_trial` reads them, during the training and after it. This module imports
torch only when a hook is created. A job whose request has a DebugHookConfig gets a hook without any of this code.
"""

from trainyard.foundation.extras import extra_of

try:
    from trainyard.formats.tensors.contract import Mode
    from trainyard.instance.hook.script_hook import Hook
except ModuleNotFoundError as error:
    # Without numpy, say how to install it.
    raise (extra_of(error) or error) from error

__all__ = ["Hook", "Mode"]
