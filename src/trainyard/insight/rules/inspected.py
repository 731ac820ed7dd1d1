"""Which tensors a rule looks at, where its parameters say that: by collections, by regexes, or by both."""

from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import Need, Parameter

COLLECTION_NAMES = Parameter("collection_names", tuple, None, "The collections whose tensors are looked at.")
TENSOR_REGEX = Parameter("tensor_regex", tuple, None, "Regexes, searched in names, of further tensors to look at.")


def inspected(
    rule: str,
    collections: tuple[str, ...] | None,
    *,
    regexes: tuple[str, ...] | None,
    otherwise: tuple[str, ...] = (),
) -> Need:
    """The tensors that either names; without any those of the collections `otherwise`, and without those a refusal."""
    if collections or regexes:
        return Need(collections=collections or (), regexes=regexes or ())
    if otherwise:
        return Need(collections=otherwise)
    raise InvalidRequest(
        f'Rule {rule} does not know which tensors to look at; give its parameter "collection_names", such as '
        f'"weights", or "tensor_regex".'
    )
