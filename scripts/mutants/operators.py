"""The mutation operators: small faults that a programmer could make in the source of a module.

A mutant replaces one span of the source. The operators skip text that only people read (docstrings, error messages,
logs), annotations, and invariants (assertions, `zip(strict=True)`).
"""

import ast
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault in one module. `before` and `after` are the lines that differ; they identify it wherever it moves."""

    operator: str
    line: int
    before: str
    after: str
    source: str


def mutants_of(source: str, *, at_most: int | None = None, seed: int = 0) -> list[Mutant]:
    """Return all mutants of a module, or a sample, in the order of its lines. Each compiles, and each is unique."""
    tree = ast.parse(source)
    edits = list(_edits(tree, _Source(source)))
    if at_most is not None:
        random.Random(seed).shuffle(edits)
    seen = {ast.dump(tree)}
    found: list[Mutant] = []
    for operator, mutated in edits:
        if len(found) == at_most:
            break
        try:
            compile(mutated, "mutant", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        shape = ast.dump(ast.parse(mutated))
        if shape not in seen:
            seen.add(shape)
            found.append(Mutant(operator, *_difference(source, mutated), mutated))
    return sorted(found, key=lambda mutant: mutant.line)


def changes_of(source: str) -> set[tuple[str, str]]:
    """Return the lines before and after of every edit of the operators, including those that do not compile."""
    return {_difference(source, mutated)[1:] for _, mutated in _edits(ast.parse(source), _Source(source))}


def _difference(source: str, mutated: str) -> tuple[int, str, str]:
    """Return the number of the first differing line, and the differing lines before and after, unindented."""
    old, new = source.split("\n"), mutated.split("\n")
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    before, after = (" ".join(map(str.strip, lines[start : len(lines) - end])) for lines in (old, new))
    return start + 1, before, after


_Positioned = ast.expr | ast.stmt | ast.ExceptHandler
_Span = tuple[int, int]


class _Source:
    """Source in bytes, because a syntax tree counts its columns in bytes."""

    def __init__(self, source: str) -> None:
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def span(self, node: _Positioned) -> _Span:
        return self._starts[node.lineno - 1] + node.col_offset, self._end(node)

    def between(self, left: ast.expr, right: ast.expr) -> _Span:
        return self._end(left), self.span(right)[0]

    def text(self, span: _Span) -> str:
        return self._bytes[slice(*span)].decode()

    def replaced(self, span: _Span, text: str) -> str:
        return (self._bytes[: span[0]] + text.encode() + self._bytes[span[1] :]).decode()

    def _end(self, node: _Positioned) -> int:
        assert node.end_lineno is not None, "the tree was parsed"
        assert node.end_col_offset is not None, "the tree was parsed"
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _edits(tree: ast.Module, source: _Source) -> Iterator[tuple[str, str]]:
    """Yield the name of the operator and the mutated source, for every operator at every place."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, is_raised = stack.pop()
        if _is_left_alone(node):
            continue
        for operator, operate in OPERATORS.items():
            if operator == "text" and is_raised:
                continue
            for span, text in operate(node, source):
                yield operator, source.replaced(span, text)
        is_raised = is_raised or isinstance(node, ast.Raise)
        stack.extend((child, is_raised) for child in _children(node))


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.keyword(name):
            return name in _KEYWORDS_LEFT_ALONE
        case ast.Expr(value):
            return isinstance(value, ast.Constant) or _called(value).startswith("log.")
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(name)], value=value):
            return name in {"__all__", "__slots__"} or _called(value) in {"TypeVar", "NewType", "logging.getLogger"}
        case ast.Call():
            return _called(node) in {"cast", "dataclass"}
    return False


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr):
        return  # Python 3.11 has no positions in here; see `_change_text`
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "bases", "type_params"}:
            continue
        yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST))


def _called(node: ast.AST) -> str:
    """Return the name of the function that an expression calls, as written, or "" if it calls none."""
    call = node.value if isinstance(node, ast.Await) else node
    return ast.unparse(call.func) if isinstance(call, ast.Call) else ""


_Replacements = Iterator[tuple[_Span, str]]


def _swap_comparisons(node: ast.AST, source: _Source) -> _Replacements:
    if not isinstance(node, ast.Compare):
        return
    for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
        yield from _swap_symbols(source, source.between(left, right), _COMPARISONS)


_COMPARISONS = {
    "<=": ("<", ">"),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">="),
    ">": (">=", "<="),
    "is not": ("is",),
    "not in": ("in",),
    "is": ("is not",),
    "in": ("not in",),
}


def _swap_arithmetic(node: ast.AST, source: _Source) -> _Replacements:
    match node:
        case ast.BinOp(left, _, right):
            yield from _swap_symbols(source, source.between(left, right), _ARITHMETIC)
        case ast.AugAssign(target, _, value):
            yield from _swap_symbols(source, source.between(target, value), _ARITHMETIC)
        case ast.UnaryOp(ast.USub() | ast.Invert(), operand):
            yield source.span(node), source.text(source.span(operand))


_ARITHMETIC = {
    "**": ("*",),
    "//": ("/", "*"),
    "<<": (">>",),
    ">>": ("<<",),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("//",),
    "|": ("&",),
    "&": ("|",),
    "@": ("*",),
}


def _swap_connectives(node: ast.AST, source: _Source) -> _Replacements:
    if not isinstance(node, ast.BoolOp):
        return
    for left, right in zip(node.values, node.values[1:], strict=False):
        yield from _swap_symbols(source, source.between(left, right), {"and": ("or",), "or": ("and",)})
    for dropped in node.values:
        kept = [value for value in node.values if value is not dropped]
        yield source.span(node), f"({ast.unparse(ast.BoolOp(node.op, kept) if len(kept) > 1 else kept[0])})"


def _swap_symbols(source: _Source, span: _Span, others: dict[str, tuple[str, ...]]) -> _Replacements:
    """Replace the first symbol in a span that contains an operator and little else."""
    text = source.text(span)
    symbol = next((each for each in others if re.search(rf"(?<!\w){re.escape(each)}(?!\w)", text)), None)
    for other in others[symbol] if symbol else ():
        yield span, text.replace(symbol or "", other, 1)


def _negate_conditions(node: ast.AST, source: _Source) -> _Replacements:
    match node:
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            conditions = [test]
        case ast.comprehension(ifs=conditions):
            for condition in conditions:
                yield source.span(condition), "True"
        case ast.UnaryOp(ast.Not(), operand):
            yield source.span(node), f"({source.text(source.span(operand))})"
            return
        case _:
            return
    for condition in conditions:
        # Comparisons that have a negation of their own get that as a mutant.
        if not isinstance(condition, ast.UnaryOp | ast.Compare):
            yield source.span(condition), f"(not ({source.text(source.span(condition))}))"


def _change_constants(node: ast.AST, source: _Source) -> _Replacements:
    match node:
        case ast.Constant(bool(value)):
            yield source.span(node), str(not value)
        case ast.Constant(int(value)):
            yield source.span(node), str(value + 1)
            yield source.span(node), f"({value - 1})"
        case ast.Constant(float(value)):
            yield source.span(node), repr(value * 2 + 1)
            yield source.span(node), repr(value / 2)


def _change_text(node: ast.AST, source: _Source) -> _Replacements:
    """Change names, keys and patterns. Text with a space in it is prose and stays."""
    match node:
        case ast.Constant(str(value)) if " " not in value:
            yield source.span(node), repr(f"{value}zz")
        case ast.Constant(bytes(value)):
            yield source.span(node), repr(value + b"zz")
        case ast.JoinedStr(values):
            literals = [each.value if isinstance(each, ast.Constant) else None for each in values]
            if any(isinstance(literal, str) and " " in literal for literal in literals):
                return
            for index, literal in enumerate(literals):
                changed = deepcopy(node)
                changed.values[index : index + 1] = [ast.Constant(f"{literal}zz")] if isinstance(literal, str) else []
                yield source.span(node), ast.unparse(changed)


def _remove_statements(node: ast.AST, source: _Source) -> _Replacements:
    match node:
        case ast.Expr(value) if not isinstance(value, ast.Yield | ast.YieldFrom):
            yield source.span(node), "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield source.span(node), "pass"
        case ast.If(body=[ast.Raise() | ast.Return() | ast.Continue() | ast.Break()], orelse=[]):
            yield source.span(node), "pass"
        case ast.Continue():
            yield source.span(node), "break"
            yield source.span(node), "pass"
        case ast.Break():
            yield source.span(node), "continue"
            yield source.span(node), "pass"


def _change_returns(node: ast.AST, source: _Source) -> _Replacements:
    match node:
        case ast.Return(None | ast.Constant(None)):
            return
        case ast.Return(ast.expr() as value):
            yield source.span(value), "None"
        case ast.Yield(ast.expr() as value) | ast.Lambda(body=value) if not isinstance(value, ast.Constant):
            yield source.span(value), "None"


def _change_calls(node: ast.AST, source: _Source) -> _Replacements:
    if not isinstance(node, ast.Call):
        return
    name = ast.unparse(node.func)
    plain, _, method = name.rpartition(".")
    for other in _OTHER_FUNCTIONS.get(method, ()):
        yield source.span(node.func), f"{plain}.{other}" if plain else other
    if method in _DROPPED and len(node.args) == 1 and not node.keywords:
        yield source.span(node), ast.unparse(node.args[0])
    first_two = node.args[:2]
    if (
        len(first_two) == 2
        and not any(isinstance(each, ast.Starred) for each in first_two)
        and method not in _SYMMETRIC
    ):
        changed = deepcopy(node)
        changed.args[:2] = reversed(changed.args[:2])
        yield source.span(node), ast.unparse(changed)
    for index, keyword in enumerate(node.keywords):
        if keyword.arg in _KEYWORDS_LEFT_ALONE:
            continue
        changed = deepcopy(node)
        del changed.keywords[index]
        yield source.span(node), ast.unparse(changed)
    if method == "suppress":
        yield source.span(node), f"{name}()"


_OTHER_FUNCTIONS = {
    "min": ("max",),
    "max": ("min",),
    "any": ("all",),
    "all": ("any",),
    "floor": ("ceil",),
    "ceil": ("floor",),
    "startswith": ("endswith",),
    "endswith": ("startswith",),
    "lower": ("upper",),
    "partition": ("rpartition",),
    "rpartition": ("partition",),
    "find": ("rfind",),
    "rfind": ("find",),
    "fullmatch": ("match",),
    "nanmin": ("nanmax",),
    "nanmax": ("nanmin",),
}
_KEYWORDS_LEFT_ALONE = {"strict", "usedforsecurity"}
_DROPPED = {"sorted", "reversed", "abs", "round"}
_SYMMETRIC = {
    "min",
    "max",
    "minimum",
    "maximum",
    "gcd",
    "hypot",
    "isclose",
    "isinstance",
    "issubclass",
    "compare_digest",
    "cast",
}


def _change_exceptions(node: ast.AST, source: _Source) -> _Replacements:
    match node:
        case ast.ExceptHandler(type=ast.Tuple(elts) as caught):
            for dropped in elts:
                kept = [each for each in elts if each is not dropped]
                yield source.span(caught), ast.unparse(ast.Tuple(kept, ast.Load()))
        case ast.ExceptHandler(type=ast.expr() as caught):
            yield source.span(caught), "()"
        case ast.Raise(exc=ast.Call(func)):
            yield source.span(func), "RuntimeError"


def _remove_elements(node: ast.AST, source: _Source) -> _Replacements:
    match node:
        case ast.Tuple(elts, ast.Load()) | ast.List(elts, ast.Load()) | ast.Set(elts) if len(elts) > 1:
            for index in range(len(elts)):
                changed = deepcopy(node)
                del changed.elts[index]
                yield source.span(node), ast.unparse(changed)
        case ast.Dict(keys):
            for index in range(len(keys)):
                changed_dict = deepcopy(node)
                del changed_dict.keys[index], changed_dict.values[index]
                yield source.span(node), ast.unparse(changed_dict)
        case ast.Slice(lower, upper):
            for bound in filter(None, (lower, upper)):
                kept = ast.Slice(*(None if each is bound else each for each in (lower, upper, node.step)))
                yield source.span(node), ast.unparse(kept)


def _drop_decorators(node: ast.AST, source: _Source) -> _Replacements:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for decorator in node.decorator_list:
        if ast.unparse(decorator).partition("(")[0] not in _DECORATORS_LEFT_ALONE:
            yield source.span(decorator), "(lambda decorated: decorated)"


# Without these decorators a class or function works as before but slower or less strictly, or not at all.
_DECORATORS_LEFT_ALONE = {
    *("dataclass", "property", "cache", "lru_cache", "cached_property", "wraps"),
    *("overload", "override", "abstractmethod", "runtime_checkable"),
}

_Operator = Callable[[ast.AST, _Source], _Replacements]
OPERATORS: dict[str, _Operator] = {
    "comparison": _swap_comparisons,
    "arithmetic": _swap_arithmetic,
    "connective": _swap_connectives,
    "condition": _negate_conditions,
    "constant": _change_constants,
    "text": _change_text,
    "statement": _remove_statements,
    "return": _change_returns,
    "call": _change_calls,
    "exception": _change_exceptions,
    "element": _remove_elements,
    "decorator": _drop_decorators,
}
