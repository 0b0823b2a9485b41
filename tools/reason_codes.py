"""Find the reason codes that `src` can put into a decision, and the modules that do.

A code is the first argument of ``Reason(...)``. Where that is a variable, the texts that can reach
it are those assigned to a variable of that name, given for a parameter or field of that name, in a
``Literal`` type of a field, or returned by a function whose result is unpacked into it, or that is
annotated as ``tuple[str, str]``: a code and its sentence.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "penstock"
#: The names of variables, parameters and fields that carry a code; any other is an error.
CARRIERS = {"code", "cause", "cure"}
#: Where decisions are made.
PACKAGES = ("core", "policies", "simulation", "spark", "lab")
CODE = re.compile(r"[a-z][a-z0-9_]*")
#: Values of the ``Literal`` types that never become a reason.
INTERNAL = {"unknown"}
#: Codes that are put together; the functions that do so are short enough to read.
COMPOSED = {"scheduled_": ("scheduled_max", "scheduled_min")}

Trees = dict[str, ast.Module]


def find_codes(source: Path = SOURCE) -> dict[str, set[str]]:
    """The modules in which each code appears, by code."""
    trees = {
        ".".join(path.relative_to(source).with_suffix("").parts): ast.parse(path.read_text("utf-8"))
        for path in sorted(source.rglob("*.py"))
        if re.search(r"\b(Reason|hold)\(|Literal\[", path.read_text("utf-8"))
        and path.relative_to(source).parts[0] in PACKAGES
    }
    places = _carrier_places(trees)
    found: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            for text in _codes_of(node, module, places, tree):
                found[text].add(module)
    return {code: modules for code, modules in found.items() if code not in INTERNAL}


def _carrier_places(trees: Trees) -> dict[str, int]:
    """The position of the parameter or field that carries a code, by function or class."""
    places = {"Reason": 0}
    for tree in trees.values():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.FunctionDef):
                names = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
            elif isinstance(node, ast.ClassDef):
                fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
                names = [each.id for each in fields if isinstance(each, ast.Name)]
            for place, name in enumerate(names):
                if name in CARRIERS and isinstance(node, ast.FunctionDef | ast.ClassDef):
                    places[node.name] = place
    return places


def _codes_of(
    node: ast.AST, module: str, places: dict[str, int], tree: ast.Module
) -> Iterator[str]:
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in places:
            given = [each.value for each in node.keywords if each.arg in CARRIERS]
            given += node.args[places[name] : places[name] + 1]
            for each in given:
                yield from _texts(each, module)
    elif isinstance(node, ast.FunctionDef) and node.returns is not None:
        if ast.unparse(node.returns).startswith("tuple[str, str]"):
            yield from _returned(node.name, 0, module, tree)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from _assigned(target, node.value, module, tree)


def _assigned(target: ast.expr, value: ast.expr, module: str, tree: ast.Module) -> Iterator[str]:
    if isinstance(target, ast.Name) and target.id in CARRIERS:
        yield from _texts(value, module)
    elif isinstance(target, ast.Name) and target.id.lower() in CARRIERS:  # Cause = Literal[...]
        yield from (text for each in ast.walk(value) if (text := _literal(each)))
    elif isinstance(target, ast.Tuple):
        for place, each in enumerate(target.elts):
            if not (isinstance(each, ast.Name) and each.id in CARRIERS):
                continue
            for part in value.values if isinstance(value, ast.BoolOp) else [value]:
                if isinstance(part, ast.Tuple):
                    yield from _texts(part.elts[place], module)
            if isinstance(value, ast.Call):
                yield from _returned(ast.unparse(value.func), place, module, tree)


def _returned(function: str, place: int, module: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and isinstance(each.value, ast.Tuple):
                    given = each.value.elts[place]
                    if not isinstance(given, ast.Subscript):  # from another such function
                        yield from _texts(given, module)


def _texts(value: ast.expr, module: str) -> Iterator[str]:
    """The codes that an expression can have; a form that is not understood is an error."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body, module)
        yield from _texts(value.orelse, module)
    elif isinstance(value, ast.JoinedStr) and isinstance(value.values[0], ast.Constant):
        yield from COMPOSED[str(value.values[0].value)]
    elif not any(  # a carrier, or what is computed from one
        (isinstance(each, ast.Name) and each.id in CARRIERS)
        or (isinstance(each, ast.Attribute) and each.attr in CARRIERS)
        for each in ast.walk(value)
    ):
        raise ValueError(f"{module}:{value.lineno}: no code can be read from {ast.unparse(value)}")


def _literal(node: ast.AST) -> str:
    """The code that a part of a ``Literal`` type is; empty if it is none."""
    text = str(node.value) if isinstance(node, ast.Constant) else ""
    return text if CODE.fullmatch(text) else ""


if __name__ == "__main__":
    for code, modules in sorted(find_codes().items()):
        print(f"{code:24} {', '.join(sorted(modules))}")
