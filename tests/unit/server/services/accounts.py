"""A yard in a folder with an administrator and two users, who call operations as the app does."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from botocore.model import ListShape, MapShape, ServiceModel, StructureShape
from botocore.model import Shape as ModelShape

from tests.simulated_compute import simulated_compute
from trainyard.foundation.errors import TrainyardError
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.identity import Caller, Identities
from trainyard.server.records.contract import AccessKey
from trainyard.server.records.sql import open_records
from trainyard.server.services.contract import Call, Shape, Yard
from trainyard.server.services.registry import service
from trainyard.server.streaming import Followers
from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.models import Models
from trainyard.wire.validation import validator

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
TYPES = {
    "string": str,
    "integer": int,
    "long": int,
    "double": float,
    "float": float,
    "boolean": bool,
    "timestamp": datetime,
    "blob": bytes,
}


@dataclass(frozen=True)
class As:
    """One caller. Errors are raised as the faults that the app would return."""

    yard: Yard
    caller: Caller
    key: AccessKey
    now: datetime = NOON

    def __call__(self, service_name: str, operation: str, **request: Any) -> Shape:
        call = Call(self.yard, self.caller, "eu-west-3", "REQUEST", self.now, HttpRequest("POST", "/", "", Headers()))
        table = service(service_name)
        model = model_of(service_name).operation_model(operation)
        validator(service_name, model)(request)
        try:
            answer = table.operations[operation](call, request)
        except TrainyardError as error:
            raise table.faults.fault(error) from error
        assert isinstance(answer, dict), "these operations block"
        check_shape(answer, model.output_shape, operation)
        return answer

    @property
    def account(self) -> str:
        return self.caller.account

    def at(self, now: datetime) -> "As":
        return replace(self, now=now)


@dataclass(frozen=True)
class Accounts:
    yard: Yard
    admin: As
    anna: As
    ben: As

    def speaking_with(self, credentials: Shape, *, now: datetime = NOON) -> As:
        """Return a caller with credentials from STS."""
        resolved = self.yard.identities.resolve(credentials["AccessKeyId"], credentials["SessionToken"], now=now)
        return As(self.yard, resolved.caller, self.yard.records.access_key(credentials["AccessKeyId"]), now)


@contextmanager
def open_accounts(folder: Path, *, records_url: str = "") -> Iterator[Accounts]:
    """Open a yard over a folder, with SQLite unless another database is given."""
    with ExitStack() as stack:
        records = open_records(records_url or f"sqlite:///{folder}/records.sqlite")
        stack.callback(records.close)
        objects = FilesystemObjects(folder / "objects")
        stack.callback(objects.close)
        identities = Identities(records)
        compute, followers = simulated_compute(folder), Followers(records, folder / "jobs")
        yard = Yard(records, objects, identities, folder / "logs", folder / "metrics", compute, followers)
        first = identities.ensure_admin(now=NOON)
        assert first is not None, "the records are empty, so a key is made"

        def speaking(key: AccessKey | None) -> As:
            assert key is not None, "a key was asked for"
            return As(yard, identities.resolve(key.id, None, now=NOON).caller, key)

        anna, ben = (identities.add_user(name, now=NOON).key for name in ("anna", "ben"))
        yield Accounts(yard, speaking(first), speaking(anna), speaking(ben))


@cache
def model_of(name: str) -> ServiceModel:
    return _MODELS.service(name)


_MODELS = Models()


def check_shape(value: Any, shape: ModelShape | None, where: str) -> None:
    """Check that an answer has all members that AWS's model requires, and no unknown ones."""
    if shape is None:
        assert not value, f"{where} answers nothing"
    elif isinstance(shape, StructureShape) and shape.is_document_type:
        assert isinstance(value, dict), where
    elif isinstance(shape, StructureShape):
        # Codecs leave out members that are None.
        value = {name: member for name, member in value.items() if member is not None}
        assert value.keys() <= shape.members.keys(), where
        assert value.keys() >= set(shape.required_members), where
        for name, member in value.items():
            check_shape(member, shape.members[name], f"{where}.{name}")
    elif isinstance(shape, ListShape):
        for item in value:
            check_shape(item, shape.member, f"{where}[]")
    elif not isinstance(shape, MapShape):
        expected = TYPES[shape.type_name]
        assert isinstance(value, expected), where
