"""The expressions of a search."""

from enum import Enum
from typing import Any


class Operator(Enum):
    """How a filter compares."""

    EQUALS = "Equals"
    NOT_EQUALS = "NotEquals"
    GREATER_THAN = "GreaterThan"
    GREATER_THAN_OR_EQUAL = "GreaterThanOrEqualTo"
    LESS_THAN = "LessThan"
    LESS_THAN_OR_EQUAL = "LessThanOrEqualTo"
    CONTAINS = "Contains"
    EXISTS = "Exists"
    NOT_EXISTS = "NotExists"


class BooleanOperator(Enum):
    """How an expression joins its filters."""

    AND = "And"
    OR = "Or"


class Filter:
    """A condition on one property."""

    def __init__(self, name: str, operator: Operator | None = None, value: Any = None) -> None:
        self.name, self.operator, self.value = name, operator, value

    def to_boto(self) -> dict[str, str]:
        shape = {"Name": self.name}
        if self.operator is not None:
            shape["Operator"] = self.operator.value
        return shape | ({} if self.value is None else {"Value": str(self.value)})


class NestedFilter:
    """Conditions that one member of a list must meet."""

    def __init__(self, property_name: str, filters: list[Filter]) -> None:
        self.property_name, self.filters = property_name, filters

    def to_boto(self) -> dict[str, Any]:
        return {"NestedPropertyName": self.property_name, "Filters": [each.to_boto() for each in self.filters]}


class SearchExpression:
    """Conditions, joined by And or by Or."""

    def __init__(
        self,
        filters: list[Filter] | None = None,
        nested_filters: list[NestedFilter] | None = None,
        sub_expressions: "list[SearchExpression] | None" = None,
        boolean_operator: BooleanOperator = BooleanOperator.AND,
    ) -> None:
        if not (filters or nested_filters or sub_expressions):
            raise ValueError("A search expression needs filters, nested filters or sub-expressions.")
        self.filters, self.nested_filters = filters or [], nested_filters or []
        self.sub_expressions, self.boolean_operator = sub_expressions or [], boolean_operator

    def to_boto(self) -> dict[str, Any]:
        parts: dict[str, list[Any]] = {
            "Filters": self.filters,
            "NestedFilters": self.nested_filters,
            "SubExpressions": self.sub_expressions,
        }
        shape: dict[str, Any] = {name: [each.to_boto() for each in found] for name, found in parts.items() if found}
        return shape | {"Operator": self.boolean_operator.value}
