"""The names of a model's tensors: those of smdebug, whatever the model is wrapped in."""

from torch import nn

# Wrappers by class name, so that none has to be imported, with the attribute that holds the wrapped module.
_WRAPPED_CHILD = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "DeepSpeedEngine": "module",
}
_WRAPPER_PREFIXES = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def chain(module: nn.Module) -> list[nn.Module]:
    """Return a module and everything it wraps, down to the model itself."""
    modules = [module]
    while (inner := modules[-1]._modules.get(_WRAPPED_CHILD.get(type(modules[-1]).__name__, ""))) is not None:
        modules.append(inner)
    return modules


def class_name(module: nn.Module) -> str:
    """Return the name of a model's class; if fully_shard replaced the class, the name of the original."""
    lineage = type(module).__mro__
    if len(lineage) > 2 and lineage[1].__name__ == "FSDPModule":
        return lineage[2].__name__
    # A scripted module keeps its class name in `original_name`.
    return str(getattr(module, "original_name", type(module).__name__))


def path(name: str) -> str:
    """Return a path in a model without the parts that wrappers of single layers insert."""
    for prefix in _WRAPPER_PREFIXES:
        name = name.replace(prefix, "").removesuffix(prefix.rstrip("."))
    return name.removesuffix(".")
