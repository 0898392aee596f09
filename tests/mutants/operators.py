"""List the small changes that can be made to a Python source file.

Some places are left out, because a test should not pin them: annotations, docstrings, decorators,
texts of messages, log calls, ``strict=`` of ``zip``, and numbers that a module names as its limits.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
COUNTERPARTS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "and_": "or_",
    "or_": "and_",
    "startswith": "endswith",
    "is_": "is_not",
    "is_not": "is_",
    "in_": "not_in",
    "not_in": "in_",
    "greatest": "least",
}
VALUES = ast.Name | ast.Attribute | ast.Subscript
CONJUNCTIONS = {"where", "and_", "or_", "filter"}
COMMUTATIVE = {"multiply", "add", "equal", "and_", "or_", "and_kleene", "or_kleene", "min", "max"}
UNPINNED_KEYWORDS = {"hint", "strict", "progress", "reason"}
LOGS = {"_log", "log", "logger", "logging", "warnings"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one file: the bytes from ``start`` to ``end`` become ``replacement``."""

    path: str
    function: str
    operator: str
    original: str
    replacement: str
    start: int
    end: int
    first_line: int
    last_line: int
    ordinal: int = 1

    @property
    def key(self) -> str:
        """Return a name that survives changes elsewhere in the file."""
        change = f"{_shorten(self.original)} → {_shorten(self.replacement)}"
        number = "" if self.ordinal == 1 else f" #{self.ordinal}"
        return f"{self.path}::{self.function}::{self.operator}::{change}{number}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with this change."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def _shorten(text: str) -> str:
    """Return a text of at most 100 characters, with a digest of a longer one."""
    if len(text) <= 100:
        return text
    return f"{text[:90]}…{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def list_mutants(source: bytes, path: str) -> list[Mutant]:
    """Return every mutant of a source file, in the order of the text."""
    lister = _Lister(source, path)
    lister.visit(ast.parse(source))
    mutants = sorted(lister.mutants, key=lambda mutant: (mutant.start, mutant.end))
    counts: Counter[str] = Counter()
    numbered = []
    for mutant in mutants:
        counts[mutant.key] += 1
        numbered.append(replace(mutant, ordinal=counts[mutant.key]))
    return numbered


class _Lister(ast.NodeVisitor):
    """Walks one file and collects its mutants."""

    def __init__(self, source: bytes, path: str) -> None:
        self.mutants: list[Mutant] = []
        self._source = source
        self._path = path
        self._names: list[str] = []
        self._lines = (0, 0)
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    # helpers

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._line_starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._line_starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end

    def _add(self, operator: str, node: ast.AST, new: ast.AST | str) -> None:
        start, end = self._span(node)
        text = new if isinstance(new, str) else ast.unparse(new)
        if isinstance(new, ast.BoolOp | ast.BinOp | ast.Compare):
            text = f"({text})"
        if text == ast.unparse(node):
            return
        original = " ".join(self._source[start:end].decode().split())
        function = ".".join(self._names) or "module"
        self.mutants.append(
            Mutant(self._path, function, operator, original, text, start, end, *self._lines)
        )

    def generic_visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.stmt):
                    self._visit_statement(child)
                elif isinstance(child, ast.AST):
                    self.visit(child)

    def _visit_statement(self, node: ast.stmt) -> None:
        outer = self._lines
        last = node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        if isinstance(body, list) and body:  # a compound statement: only its header
            last = max(node.lineno, body[0].lineno - 1)
        self._lines = (node.lineno, last)
        self.visit(node)
        self._lines = outer

    # what is left out

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave the texts of messages alone."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave assertions alone."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Leave imports alone."""

    def visit_Import(self, node: ast.Import) -> None:
        """Leave imports alone."""

    def visit_Assign(self, node: ast.Assign) -> None:
        is_limit = not self._names and not any(
            isinstance(child, ast.Call | ast.Compare) for child in ast.walk(node.value)
        )
        if not is_limit:
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and self._in_class):
            self.visit(node.value)

    _in_class = False

    # where the walk is

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self._in_class = self._in_class, True
        self._names.append(node.name)
        for child in node.body:
            self._visit_statement(child)
        self._names.pop()
        self._in_class = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._in_class = self._in_class, False
        self._names.append(node.name)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for child in node.body:
            self._visit_statement(child)
        self._names.pop()
        self._in_class = outer

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    # operators

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            other = COMPARISONS[type(operator)]()
            operators = [*node.ops[:index], other, *node.ops[index + 1 :]]
            self._add("comparison", node, ast.Compare(node.left, operators, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add("boolean", node, ast.BoolOp(other, node.values))
        for index in range(len(node.values)):
            rest = [*node.values[:index], *node.values[index + 1 :]]
            new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            self._add("dropped condition", node, f"({ast.unparse(new)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.Invert):
            self._add("dropped not", node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = ARITHMETIC.get(type(node.op))
        if other is not None and not (_is_text(node) or _is_type(node)):
            self._add("arithmetic", node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, repr(not node.value))
        elif isinstance(node.value, int):
            self._add("constant", node, repr(node.value + 1))
            if node.value > 0:
                self._add("constant", node, repr(node.value - 1))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add("choice", node, f"({ast.unparse(node.body)})")
        self._add("choice", node, f"({ast.unparse(node.orelse)})")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._add("dropped filter", condition, "True")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if isinstance(node.type, ast.Tuple):
            for index in range(len(node.type.elts)):
                rest = [*node.type.elts[:index], *node.type.elts[index + 1 :]]
                names = ", ".join(ast.unparse(name) for name in rest)
                self._add("dropped exception", node.type, f"({names},)")
        for child in node.body:
            self._visit_statement(child)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name_of(node.func)
        counterpart = COUNTERPARTS.get(name)
        if counterpart is not None:
            if isinstance(node.func, ast.Name):
                self._add("counterpart", node.func, counterpart)
            elif isinstance(node.func, ast.Attribute):
                new = ast.Attribute(node.func.value, counterpart, ast.Load())
                self._add("counterpart", node.func, new)
        for index, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in UNPINNED_KEYWORDS:
                rest = [*node.keywords[:index], *node.keywords[index + 1 :]]
                self._add("dropped keyword", node, ast.Call(node.func, node.args, rest))
        if name in CONJUNCTIONS and len(node.args) > 1:
            for index in range(len(node.args)):
                arguments = [*node.args[:index], *node.args[index + 1 :]]
                self._add("dropped condition", node, ast.Call(node.func, arguments, node.keywords))
        elif name not in COMMUTATIVE:
            for index in range(len(node.args) - 1):
                one, two = node.args[index : index + 2]
                if not (isinstance(one, VALUES) and isinstance(two, VALUES)):
                    continue  # of two kinds: any call fails
                arguments = [*node.args[:index], two, one, *node.args[index + 2 :]]
                self._add("swapped arguments", node, ast.Call(node.func, arguments, node.keywords))
        self.visit(node.func)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg not in UNPINNED_KEYWORDS:
                self.visit(keyword.value)

    # statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom):
            if isinstance(node.value, ast.Yield | ast.YieldFrom):
                self.generic_visit(node)
            return
        call = node.value
        if isinstance(call, ast.Call) and LOGS & {
            child.id for child in ast.walk(call.func) if isinstance(child, ast.Name)
        }:
            return
        self._add("dropped statement", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if "AssertionError" not in ast.unparse(node):
            self._add("dropped raise", node, "pass")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("dropped statement", node, "pass")
        other = ARITHMETIC.get(type(node.op))
        if other is not None:
            self._add("arithmetic", node, ast.AugAssign(node.target, other(), node.value))
        self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("dropped statement", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add("dropped statement", node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add("dropped statement", node, "pass")

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        start, _ = self._span(node)
        leaves = isinstance(node.body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break)
        if leaves and not node.orelse and not self._source[start:].startswith(b"elif"):
            self._add("dropped guard", node.test, "False")
        else:
            self._add("negated condition", node.test, f"not ({ast.unparse(node.test)})")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.generic_visit(node)


def _is_text(node: ast.BinOp) -> bool:
    """Return True for a concatenation of texts, which no other operator can do."""
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _is_type(node: ast.BinOp) -> bool:
    """Return True for a union of types."""
    if not isinstance(node.op, ast.BitOr):
        return False
    name = _name_of(node.right)
    return name[:1].isupper() or hasattr(builtins, name)


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def names_of_module_statement(source: bytes, line: int) -> set[str]:
    """Return the names that the module-level statement at a line defines."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ClassDef) and statement.lineno == line:
            return {statement.name}
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            targets: Iterator[ast.AST] = ast.walk(statement)
            return {
                child.id
                for child in targets
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
            }
    return set()


def find_import_line(source: bytes, mutant: Mutant) -> int | None:
    """Return the line of the module-level statement that runs a mutant on import; None for code
    that runs later."""
    if mutant.function == "module":
        return mutant.first_line
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ClassDef) and statement.name == mutant.function:
            return statement.lineno
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for child in ast.walk(statement):
                if isinstance(child, ast.Call) and _name_of(child.func) == mutant.function:
                    return statement.lineno
    return None
