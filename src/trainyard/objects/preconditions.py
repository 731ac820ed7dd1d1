"""Whether a write may go ahead, given what is there."""

from trainyard.foundation.locations import Location
from trainyard.objects.contract import Precondition, PreconditionFailed


def check_precondition(precondition: Precondition, where: Location, *, etag: str | None) -> None:
    """Raise PreconditionFailed unless it holds of what lies at `where`, whose ETag is given, None for nothing."""
    if precondition.absent and etag is not None:
        raise PreconditionFailed(f"{where} exists already, with the ETag {etag}.")
    check_etag(precondition.etag, where, etag=etag)


def check_etag(wanted: str | None, where: Location, *, etag: str | None) -> None:
    if wanted is None or wanted == etag:
        return
    found = "does not exist" if etag is None else f"has the ETag {etag}"
    raise PreconditionFailed(f"{where} {found}; the ETag {wanted} was demanded.")
