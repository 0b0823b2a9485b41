"""Change one thing at a time in a module and see whether its tests notice.

    python -m tools.mutation guards --share 0.2

Each mutant runs the tests of its module in a forked process that imports the changed source. One
that no test notices is printed: it needs a test, or a line in `EXPLAINED` that says why not.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: The tests that have to notice, by module.
MODULES = {
    "guards": ("penstock.core.guards", ("tests/core/test_guards.py", "tests/core/test_spending.py",
                                        "src/penstock/core/guards.py")),
    "knowledge": ("penstock.core.knowledge", ("tests/core", "src/penstock/core/knowledge.py")),
    "schedule": ("penstock.core.schedule", ("tests/core/test_schedule.py",
                                            "src/penstock/core/schedule.py")),
    "actuator": ("penstock.spark.actuator.actuator", ("tests/spark/actuator",)),
}  # fmt: skip
#: Mutants that change nothing that anybody can see, by module and source line.
EXPLAINED: dict[str, tuple[str, ...]] = {
    "schedule": (
        # What is not given counts as 0 or as 1: neither is negative, nor larger than the maximum.
        "if (least or 0) < 0 or (most is not None and most < max(1, least or 0)):",
        # A day more to look back finds only starts that have ended; there is a day to spare.
        "for back in range(int(duration_s // 86_400.0) + 3):",
        # Any number below the least value is refused.
        "ends = [names.get(each, int(each) if each.isdecimal() else -1) for each in given]",
        # The lengths were compared above.
        "for piece, (name, least, most, names) in zip(pieces, _FIELDS, strict=True):",
    ),
}
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
_SWAPPED = {
    "min": "max",
    "max": "min",
    "all": "any",
    "any": "all",
    "floor": "ceil",
    "ceil": "floor",
}
#: Seconds that the tests of one mutant may take: an endless loop is noticed too.
PATIENCE_S = 300


@dataclass(frozen=True)
class Mutant:
    """A changed source, and where it differs."""

    line: int
    what: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a source.

    >>> [each.what for each in mutants("def f(a): return a + 1 if a < 3 else not a")]
    ['Lt to LtE', 'Add to Sub', 'no not', '3 to 4', '1 to 2']
    """
    for number in range(len(_inside_functions(ast.parse(source)))):
        tree = ast.parse(source)
        node = _inside_functions(tree)[number]
        if what := _change(node):
            yield Mutant(getattr(node, "lineno", 0), what, ast.unparse(tree))


def _inside_functions(tree: ast.AST) -> list[ast.AST]:
    """What may be changed: code, not annotations, defaults or docstrings."""
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    found: dict[int, ast.AST] = {}
    for function in functions:
        for statement in function.body:
            if not isinstance(statement, ast.Expr | ast.FunctionDef):
                found |= {id(each): each for each in ast.walk(statement)}
    return list(found.values())


def _change(node: ast.AST) -> str:
    """Change a node in place; what was done, or nothing."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            node.ops = [_COMPARED[type(op)]()]
            return f"{type(op).__name__} to {type(node.ops[0]).__name__}"
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            node.op = _ARITHMETIC[type(op)]()
            return f"{type(op).__name__} to {type(node.op).__name__}"
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            return f"{type(op).__name__} to {type(node.op).__name__}"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            vars(node).update(vars(ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), operand))))
            return "no not"
        case ast.Call(func=ast.Name(id=name) as called) if name in _SWAPPED:
            called.id = _SWAPPED[name]
            return f"{name} to {called.id}"
        case ast.Constant(value=bool(value)):
            node.value = not value
            return f"{value} to {node.value}"
        case ast.Constant(value=int(value) | float(value)):
            node.value = value + 1
            return f"{value} to {node.value}"
    return ""


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def exec_module(self, module: Any) -> None:
        exec(compile(self._source, f"{self._name} (mutant)", "exec"), module.__dict__)


def is_noticed(name: str, path: Path, source: str, tests: tuple[str, ...]) -> bool:
    """Whether a test fails with the changed source, in a process of its own."""
    child = os.fork()
    if not child:
        code = 1
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            signal.alarm(PATIENCE_S)
            sys.meta_path.insert(0, _Changed(name, path, source))
            importlib.import_module(name)  # before pytest, whose own finder would be asked first
            code = int(_pytest(tests))
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] != 0


def _pytest(tests: tuple[str, ...]) -> int:
    import pytest

    return pytest.main(["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests])


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutation")
    parser.add_argument("modules", nargs="*", default=list(MODULES))
    parser.add_argument("--share", type=float, default=1.0, help="try only this share of them")
    given = parser.parse_args()
    import numpy  # noqa: F401  # once, and not in each child
    import pytest  # noqa: F401

    survivors = 0
    for short in given.modules:
        name, tests = MODULES[short]
        path = ROOT / "src" / Path(*name.split(".")).with_suffix(".py")
        lines = path.read_text().splitlines()
        there = tuple(str(ROOT / each) for each in tests if (ROOT / each).exists())
        if is_noticed(name, path, path.read_text(), there):
            print(f"{short}: its tests fail as it is")
            return 2
        chosen = list(mutants(path.read_text()))
        random.Random(1).shuffle(chosen)
        chosen = chosen[: max(1, round(len(chosen) * given.share))]
        left = [each for each in chosen if not is_noticed(name, path, each.source, there)]
        left = [
            each for each in left if lines[each.line - 1].strip() not in EXPLAINED.get(short, ())
        ]
        for each in left:
            print(
                f"{path.relative_to(ROOT)}:{each.line}: {each.what}: {lines[each.line - 1].strip()}"
            )
        print(f"{short}: {len(chosen)} mutants, {len(left)} not noticed", flush=True)
        survivors += len(left)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
