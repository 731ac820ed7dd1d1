"""What experiments, trials and trial components have in common."""

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from .search_expression import SearchExpression
from .service import BotoService


class Entity:
    """An experiment, a trial or a trial component of the yard, with its properties as attributes."""

    # The word in the names of operations, the type for Search, and the attribute that has the name.
    _word: ClassVar[str]
    _resource: ClassVar[str]
    _name: ClassVar[str]
    # The attributes by the names of the members.
    _members: ClassVar[dict[str, str]]
    _updated: ClassVar[tuple[str, ...]]

    def __init__(self, sagemaker_boto_client: Any = None, **attributes: Any) -> None:
        self.sagemaker_boto_client = sagemaker_boto_client
        self.service = BotoService(sagemaker_boto_client)
        for attribute in self._members.values():
            setattr(self, attribute, None)
        vars(self).update(attributes)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._members.values())
        return f"{type(self).__name__}({shown})"

    @classmethod
    def _of_name(cls, name: str, client: Any) -> Self:
        found = cls(client, **{cls._name: name})
        return found._refresh()

    @classmethod
    def _of_shape(cls, shape: dict[str, Any], client: Any) -> Self:
        found = cls(client)
        found._read(shape)
        return found

    @classmethod
    def _listed(cls, member: str, client: Any, **request: Any) -> Iterator[Self]:
        for shape in BotoService(client).pages(f"List{cls._word}s", member, **request):
            yield cls._of_shape(shape, client)

    @classmethod
    def search(
        cls,
        search_expression: SearchExpression | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        max_results: int | None = None,
        sagemaker_boto_client: Any = None,
    ) -> Iterator[Self]:
        """Yield what matches an expression."""
        request = {
            "Resource": cls._resource,
            "SearchExpression": search_expression.to_boto() if search_expression else None,
            "SortBy": sort_by,
            "SortOrder": sort_order,
            "MaxResults": max_results,
        }
        for result in BotoService(sagemaker_boto_client).pages("Search", "Results", **request):
            yield cls._of_shape(result[cls._word], sagemaker_boto_client)

    def save(self) -> Self:
        """Store the attributes as they are now."""
        self.service.call(f"Update{self._word}", **self._identity(), **self._changes())
        return self

    def _identity(self) -> dict[str, str]:
        return {f"{self._word}Name": getattr(self, self._name)}

    def _changes(self) -> dict[str, Any]:
        return {member: getattr(self, self._members[member]) for member in self._updated}

    def _refresh(self) -> Self:
        self._read(self.service.call(f"Describe{self._word}", **self._identity()))
        return self

    def _read(self, shape: dict[str, Any]) -> None:
        for member, attribute in self._members.items():
            if member in shape:
                setattr(self, attribute, shape[member])
