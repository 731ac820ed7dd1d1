"""Validates parsed shapes against the constraints of the models, with AWS's messages.

A checker is a closure compiled once per shape. It returns None for a valid value, so that a valid request allocates no
paths and no lists.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from trainyard.wire.fault import Fault
from trainyard.wire.patterns import matcher

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from botocore.model import Shape as ModelShape

Validate = Callable[[dict[str, Any]], None]

_CODES = {
    "logs": "InvalidParameterException",
    "ecr": "InvalidParameterException",
    "resourcegroupstaggingapi": "InvalidParameterException",
    "sts": "ValidationError",
    "iam": "ValidationError",
    "cloudwatch": "ValidationError",
    "ec2": "ValidationError",
    "sagemaker-runtime": "ValidationError",
}
# The enums that S3 enforces, by shape name; it stores or ignores unknown values of other enums.
_S3_ENUM_FAULTS = {
    "StorageClass": ("InvalidStorageClass", "The storage class you specified is not valid"),
    "ObjectCannedACL": ("InvalidArgument", "The canned ACL you specified is not valid"),
    "BucketCannedACL": ("InvalidArgument", "The canned ACL you specified is not valid"),
    "MetadataDirective": ("InvalidArgument", "Unknown metadata directive."),
    "TaggingDirective": ("InvalidArgument", "Unknown tagging directive."),
    "ServerSideEncryption": ("InvalidArgument", "The encryption method specified is not supported"),
    "ObjectOwnership": ("InvalidArgument", "Invalid x-amz-object-ownership header"),
    "EncodingType": ("InvalidArgument", "Invalid Encoding Method specified in Request"),
}
# Enums that the yard extends: its catalog of instance types decides, and has `local` too.
_OPEN_ENUMS = frozenset({"TrainingInstanceType"})
# Lengths that the yard extends: all actions of a rule are one value, and two of them reach AWS's limit.
_MAX_LENGTHS = {"ConfigValue": 4096}
# The longest string to match against a pattern whose shape has no maximum length.
_MAX_PATTERN_INPUT = 65536
# How much of a value a message repeats.
_MAX_SHOWN_CHARACTERS = 1024
_MAX_SHOWN_ITEMS = 50
# Every item of a long list may be invalid.
_MAX_PROBLEMS = 100

_cache: "dict[OperationModel, Validate]" = {}


def validator(service: str, operation: "OperationModel") -> Validate:
    """Return a function that raises one Fault naming every constraint that a request shape violates."""
    validate = _cache.get(operation)
    if validate is None:
        validate = _cache[operation] = _compile(service, operation)
    return validate


def _compile(service: str, operation: "OperationModel") -> Validate:
    if operation.input_shape is None:
        return lambda _: None
    if service == "s3":
        return _s3_validator(operation)
    check = _Checkers().compile(operation.input_shape)
    code = _CODES.get(service, "ValidationException")

    def validate(shape: dict[str, Any]) -> None:
        problems = check(shape) if check is not None else None
        if problems:
            raise Fault(code, _message(problems))

    return validate


@dataclass(frozen=True, slots=True)
class _Problem:
    """One violated constraint; `value` is None if it is sensitive and must not be repeated."""

    path: str
    value: str | None
    constraint: str

    def under(self, prefix: str) -> "_Problem":
        return _Problem(f"{prefix}.{self.path}" if self.path else prefix, self.value, self.constraint)

    def __str__(self) -> str:
        value = f"{self.value} " if self.value is not None else ""
        return f"Value {value}at '{self.path}' failed to satisfy constraint: {self.constraint}"


Check = Callable[[Any], list[_Problem] | None]


def _message(problems: list[_Problem]) -> str:
    shown = problems[:_MAX_PROBLEMS]
    return f"{len(shown)} validation error{'s' if len(shown) > 1 else ''} detected: {'; '.join(map(str, shown))}"


class _Checkers:
    """Compiles the checkers of one operation; None stands for a shape without constraints."""

    def __init__(self, *, checks_values: bool = True) -> None:
        self._checks_values = checks_values
        self._structures: dict[str, Check | None] = {}

    def compile(self, shape: "ModelShape") -> Check | None:
        if shape.type_name == "structure":
            return self._structure(shape)
        if shape.type_name == "list":
            return _check_both(self._value_check(shape), _list_check(shape.member, self.compile(shape.member)))
        if shape.type_name == "map":
            return _check_both(
                self._value_check(shape), _map_check(shape, self.compile(shape.key), value=self.compile(shape.value))
            )
        return self._value_check(shape)

    def _value_check(self, shape: "ModelShape") -> Check | None:
        return _compile_value_check(shape) if self._checks_values else None

    def _structure(self, shape: "ModelShape") -> Check | None:
        name: str = shape.name
        if name not in self._structures:
            self._structures[name] = lambda value: self._check_structure(name, value)
            members = {member_name: self.compile(member) for member_name, member in shape.members.items()}
            checks = {member_name: check for member_name, check in members.items() if check is not None}
            is_union = bool(shape.metadata.get("union"))
            self._structures[name] = _structure_check(tuple(shape.required_members), checks, is_union=is_union)
        return self._structures[name]

    def _check_structure(self, name: str, value: Any) -> list[_Problem] | None:
        check = self._structures[name]
        return check(value) if check is not None else None


def _structure_check(required: tuple[str, ...], checks: Mapping[str, Check], *, is_union: bool) -> Check | None:
    if not required and not checks and not is_union:
        return None

    def check(value: Any) -> list[_Problem] | None:
        problems: list[_Problem] = []
        for name, item in value.items():
            check_member = checks.get(name)
            if check_member is not None:
                found = check_member(item)
                if found:
                    problems.extend(problem.under(_lower(name)) for problem in found)
        for name in required:
            if name not in value:
                problems.append(_Problem(_lower(name), "null", "Member must not be null"))
        if is_union and len(value) != 1:
            problems.append(_Problem("", None, "Member must have exactly one of its members set"))
        return problems or None

    return check


def _list_check(member: "ModelShape", check_item: Check | None) -> Check:
    constraints, is_sensitive = _constraints_text(member), _is_sensitive(member)

    def check(value: Any) -> list[_Problem] | None:
        problems: list[_Problem] = []
        for number, item in enumerate(value, 1):
            if item is None:
                return [_Problem("", _quote(value, is_sensitive=is_sensitive), "Member must not be null")]
            found = check_item(item) if check_item is not None else None
            if found and constraints:
                constraint = f"Member must satisfy constraint: {constraints}"
                return [_Problem("", _quote(value, is_sensitive=is_sensitive), constraint)]
            problems.extend(problem.under(f"{number}.member") for problem in found or ())
            if len(problems) >= _MAX_PROBLEMS:
                break
        return problems or None

    return check


def _map_check(shape: "ModelShape", key: Check | None, *, value: Check | None) -> Check:
    key_constraints, value_constraints = _constraints_text(shape.key), _constraints_text(shape.value)
    is_sensitive = _is_sensitive(shape.key) or _is_sensitive(shape.value)

    def check(entries: Any) -> list[_Problem] | None:
        problems: list[_Problem] = []
        for name, item in entries.items():
            found = value(item) if value is not None and item is not None else None
            constraint = ""
            if item is None:
                constraint = "Member must not be null"
            elif key is not None and key(name):
                constraint = f"Map keys must satisfy constraint: {key_constraints}"
            elif found and value_constraints:
                constraint = f"Map value must satisfy constraint: {value_constraints}"
            if constraint:
                return [_Problem("", _quote(entries, is_sensitive=is_sensitive), constraint)]
            problems.extend(problem.under(f"{name}.member") for problem in found or ())
            if len(problems) >= _MAX_PROBLEMS:
                break
        return problems or None

    return check


def _check_both(first: Check | None, second: Check) -> Check:
    """Combine two checks; the second runs only if the first passes."""
    if first is None:
        return second
    return lambda value: first(value) or second(value)


@dataclass(frozen=True, slots=True)
class _Constraint:
    text: str
    holds: Callable[[Any], object]


def _compile_value_check(shape: "ModelShape") -> Check | None:
    """Return the checker of a shape's own constraints: length, range, pattern and enum."""
    constraints = tuple(_constraints(shape))
    if not constraints:
        return None
    tests = tuple(constraint.holds for constraint in constraints)
    is_sensitive = _is_sensitive(shape)

    def check(value: Any) -> list[_Problem] | None:
        for holds in tests:
            if not holds(value):
                break
        else:
            return None
        quoted = _quote(value, is_sensitive=is_sensitive)
        return [_Problem("", quoted, it.text) for it in constraints if not it.holds(value)]

    return check


def _constraints(shape: "ModelShape") -> list[_Constraint]:
    minimum, maximum = shape.metadata.get("min"), _MAX_LENGTHS.get(shape.name, shape.metadata.get("max"))
    enum_values, pattern = shape.metadata.get("enum"), shape.metadata.get("pattern")
    is_number = shape.type_name in ("integer", "long", "float", "double")
    measured = "value" if is_number else "length"
    measure: Callable[[Any], Any] = _identity if is_number else len
    found = []
    if maximum is not None:
        text = f"Member must have {measured} less than or equal to {maximum}"
        found.append(_Constraint(text, lambda value: measure(value) <= maximum))
    if minimum is not None:
        text = f"Member must have {measured} greater than or equal to {minimum}"
        found.append(_Constraint(text, lambda value: measure(value) >= minimum))
    if enum_values and shape.name not in _OPEN_ENUMS:
        found.append(
            _Constraint(
                f"Member must satisfy enum value set: [{', '.join(enum_values)}]", set(enum_values).__contains__
            )
        )
    if pattern:
        text = f"Member must satisfy regular expression pattern: {pattern}"
        found.append(_Constraint(text, _pattern_test(matcher(pattern), maximum)))
    return found


def _identity(value: Any) -> Any:
    return value


def _pattern_test(match: Callable[[str], object], maximum: int | None) -> Callable[[str], object]:
    """Match only strings of bounded length; a string that is too long already violates its length constraint."""
    if maximum is None:
        return lambda value: len(value) <= _MAX_PATTERN_INPUT and match(value)
    return lambda value: len(value) > maximum or match(value)


def _constraints_text(shape: "ModelShape") -> str:
    """Return all constraints of a scalar, as AWS lists them for the items of a list or a map."""
    if shape.type_name in ("structure", "list", "map"):
        return ""
    return f"[{', '.join(constraint.text for constraint in _constraints(shape))}]"


def _lower(name: str) -> str:
    return name[:1].lower() + name[1:]


def _is_sensitive(shape: "ModelShape") -> bool:
    return bool(shape.metadata.get("sensitive"))


def _quote(value: Any, *, is_sensitive: bool) -> str | None:
    return None if is_sensitive else f"'{_format_value(value)[:_MAX_SHOWN_CHARACTERS]}'"


def _format_value(value: Any) -> str:
    """Format a value as Java prints it, which is what AWS repeats."""
    if isinstance(value, dict):
        entries = (f"{name}={_format_value(item)}" for name, item in islice(value.items(), _MAX_SHOWN_ITEMS))
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_format_value(item) for item in islice(value, _MAX_SHOWN_ITEMS))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return value if isinstance(value, str) else f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def _s3_validator(operation: "OperationModel") -> Validate:
    """Return the validator of an S3 operation. S3 reports one violation at a time and enforces less than its model."""
    members = operation.input_shape.members
    required = {name: members[name] for name in operation.input_shape.required_members}
    bodies = {name: check for name, member in members.items() if (check := _body_check(member)) is not None}
    enum_values = {
        name: (frozenset(member.metadata["enum"]), *_S3_ENUM_FAULTS[member.name])
        for name, member in members.items()
        if member.name in _S3_ENUM_FAULTS
    }

    def validate(shape: dict[str, Any]) -> None:
        for name, member in required.items():
            if name not in shape:
                raise _missing_member(member)
        for name, value in shape.items():
            if name in enum_values and value not in enum_values[name][0]:
                raise _invalid_enum_value(members[name], value, fault=enum_values[name][1:])
            if name in bodies and (problems := bodies[name](value)):
                raise Fault("MalformedXML", f"{_MALFORMED}. {_message(problems)}")

    return validate


_MALFORMED = "The XML you provided was not well-formed or did not validate against our published schema"


def _body_check(member: "ModelShape") -> Check | None:
    if member.type_name != "structure" or "location" in member.serialization:
        return None
    return _Checkers(checks_values=False).compile(member)


def _missing_member(member: "ModelShape") -> Fault:
    location, name = member.serialization.get("location"), member.serialization.get("name", member.name)
    if location == "header":
        return Fault("InvalidRequest", f"Missing required header for this request: {name}")
    if location == "querystring":
        return Fault("InvalidArgument", f"Missing required parameter for this request: {name}")
    return Fault("MissingRequestBodyError", "Request body is empty.")


def _invalid_enum_value(member: "ModelShape", value: str, *, fault: tuple[str, str]) -> Fault:
    code, message = fault
    return Fault(code, message, members={"ArgumentName": member.serialization["name"], "ArgumentValue": value})
