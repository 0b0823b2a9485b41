"""Find functions, classes and methods of `src` that nothing but tests reaches.

Starts at the entry points (the command line, `python -m` modules, the public API, and all of
`benchmarks`, `docs`, `examples`), follows every reference, and lists what was not reached. Names
are resolved through imports. A method counts as reached when its class is and some reached code
names it. Exit code 1 if something is idle and not excepted.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "penstock"
SCRIPTS = ("benchmarks", "docs", "examples")

#: What is idle on purpose, each with its reason.
_OUTAGE = "what the testbed offers to those who try an outage (docs/testbed.md)"
_CLAIM = "named by the condition of a claim, in the .md of the study"
EXCEPTIONS: dict[str, str] = {
    f"{PACKAGE}.testbed.bed:Testbed.pause_broker": _OUTAGE,
    f"{PACKAGE}.testbed.bed:Testbed.resume_broker": _OUTAGE,
    f"{PACKAGE}.testbed.clusters.cluster:SparkCluster.remove_node": _OUTAGE,
    f"{PACKAGE}.policies.daedalus.regression:RunningRegression.through": (
        "builds a line in one call in the executed examples of that file"
    ),
    f"{PACKAGE}.spark.launch:attach_configured": "called by src/penstock_hook.py",
    f"{PACKAGE}.lab.studies.daedalus_tables:DaedalusResult.workers_with_profiling": _CLAIM,
    f"{PACKAGE}.lab.studies.koper2022:KoperResult.reached_the_most": _CLAIM,
}

_DOTTED = re.compile(rf"{PACKAGE}(\.\w+)+(:\w+)?")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

#: Bases that call no method of the classes derived from them.
_WITHOUT_CALLBACKS = {"Struct", "Protocol", "NamedTuple", "Enum", "StrEnum", "Generic"}

#: A definition: its module and its name there; the name is empty for the module's own statements.
Key = tuple[str, str]


@dataclass
class Module:
    """A parsed file: its definitions, its other statements, and what its imports stand for."""

    name: str
    is_package: bool
    definitions: dict[str, list[ast.AST]] = field(default_factory=dict)
    statements: list[ast.AST] = field(default_factory=list)
    imports: dict[str, str] = field(default_factory=dict)


def parse(path: Path, name: str) -> Module:
    module = Module(name, is_package=path.name == "__init__.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                target = each.name if each.asname else each.name.split(".")[0]
                module.imports[each.asname or target] = target
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                module.imports[each.asname or each.name] = f"{node.module}.{each.name}"
    _define(module, tree.body)
    return module


def _define(module: Module, body: list[ast.stmt]) -> None:
    for node in body:
        if isinstance(node, _DEFINITIONS):
            module.definitions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)):
                module.definitions.setdefault(name, []).append(node)
        elif isinstance(node, ast.If | ast.Try):
            module.statements.append(node)
            _define(module, [each for each in node.body if isinstance(each, _DEFINITIONS)])
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            module.statements.append(node)


class Walk:
    """What is reached from the entry points so far."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.modules = modules
        self.reached: set[Key] = set()
        self.names: set[str] = set()
        self._waiting: list[Key] = []
        self._methods: dict[str, list[Key]] = {}
        self._open: set[str] = set()

    def start(self, text: str) -> None:
        """Reach a module, or a name of it, given as a dotted text."""
        self._refer(text.replace(":", "."))
        self._drain()

    def publish(self, dotted: str) -> None:
        """Reach a name of the public API; of a class, all that users may call."""
        before = set(self.reached)
        self._refer(dotted)
        for module, name in self.reached - before:
            for key, owner in _definitions(self.modules[module]) if name else ():
                if owner == name and not key.split(".")[1].startswith("_"):
                    self._reach((module, key))
        self._drain()

    def _drain(self) -> None:
        while self._waiting:
            module, name = self._waiting.pop()
            nodes = self._nodes(module, name)
            for node in nodes:
                self._visit(node, self.modules[module], name)

    def _nodes(self, module: str, name: str) -> list[ast.AST]:
        if not name:
            return self.modules[module].statements
        if "." in name:
            owner, method = name.split(".")
            return [
                each
                for kind in self.modules[module].definitions[owner]
                if isinstance(kind, ast.ClassDef)
                for each in kind.body
                if isinstance(each, _DEFINITIONS) and each.name == method
            ]
        return self.modules[module].definitions[name]

    def _reach(self, key: Key) -> None:
        if key not in self.reached:
            self.reached.add(key)
            self._waiting.append(key)
            if key[1]:
                self._reach((key[0], ""))
            for hook in () if key[1] else ("__getattr__", "__dir__"):
                if hook in self.modules[key[0]].definitions:
                    self._reach((key[0], hook))

    def _refer(self, dotted: str) -> None:
        """Reach what `dotted` stands for, through imports of imports."""
        parent, _, name = dotted.rpartition(".")
        if dotted in self.modules:
            self._reach((dotted, ""))
            hidden = parent in self.modules and name in self.modules[parent].imports
            if not hidden:  # else the package also has something else of that name
                return
        if not parent:
            return
        if parent not in self.modules:
            if parent.startswith(PACKAGE) and "." in parent:
                resolved = self._resolve(parent)
                if resolved in self.modules and resolved != parent:
                    self._refer(f"{resolved}.{name}")
                else:
                    self._refer(parent)
            return
        module = self.modules[parent]
        if name in module.definitions:
            self._reach((parent, name))
        elif name in module.imports and module.imports[name] != dotted:
            self._refer(module.imports[name])

    def _resolve(self, dotted: str) -> str:
        parent, _, name = dotted.rpartition(".")
        if parent in self.modules and name in self.modules[parent].imports:
            return self.modules[parent].imports[name]
        return dotted

    def _visit(self, node: ast.AST, module: Module, name: str) -> None:
        if isinstance(node, ast.ClassDef) and "." not in name:
            self._visit_class(node, module)
            return
        for each in ast.walk(node):
            self._visit_one(each, module)

    def _visit_class(self, node: ast.ClassDef, module: Module) -> None:
        """Bases, decorators, fields and special methods at once; a method when it is named."""
        foreign = any(self._is_foreign(base, module) for base in node.bases) or any(
            isinstance(each, ast.ClassDef) and each.name == "Java" for each in node.body
        )
        for part in [*node.bases, *node.keywords, *node.decorator_list]:
            self._visit(part, module, "")
        for each in node.body:
            if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                self._visit(each, module, "x.x")
                continue
            key = (module.name, f"{node.name}.{each.name}")
            special = each.name.startswith("__") and each.name.endswith("__")
            if special or foreign or each.name in self.names:
                self._reach(key)
            else:
                self._methods.setdefault(each.name, []).append(key)

    def _is_foreign(self, base: ast.expr, module: Module) -> bool:
        """Whether a class that stands elsewhere calls the methods of this one."""
        while isinstance(base, ast.Subscript):
            base = base.value
        text = ast.unparse(base)
        target = module.imports.get(text.split(".")[0], "")
        known = text in module.definitions or target.startswith(PACKAGE)
        return not known and text not in {
            "Struct",
            "Protocol",
            "NamedTuple",
            "Enum",
            "StrEnum",
            "Generic",
        }

    def _visit_one(self, node: ast.AST, module: Module) -> None:
        if isinstance(node, ast.Name):
            self._visit_name(node.id, module)
        elif isinstance(node, ast.Attribute):
            self._visit_attribute(node, module)
        elif isinstance(node, ast.Import):
            for each in node.names:
                self._refer(each.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._visit_text(node.value, module)
        elif isinstance(node, ast.JoinedStr):
            prefix = node.values[0] if node.values else None
            text = str(prefix.value) if isinstance(prefix, ast.Constant) else ""
            if text.startswith(f"{PACKAGE}."):
                self._open_package(text)

    def _visit_attribute(self, node: ast.Attribute, module: Module) -> None:
        if node.attr == "__subclasses__":
            self._reach_subclasses(ast.unparse(node.value))
        self._name_method(node.attr)
        first, _, rest = _dotted(node).partition(".")
        if first in module.imports:
            self._refer(f"{module.imports[first]}.{rest}")

    def _reach_subclasses(self, base: str) -> None:
        """A table of all classes derived from `base` reaches each of them."""
        for module in self.modules.values():
            for name, nodes in module.definitions.items():
                for node in nodes:
                    if isinstance(node, ast.ClassDef) and base in map(ast.unparse, node.bases):
                        self._reach((module.name, name))

    def _visit_name(self, name: str, module: Module) -> None:
        if name in module.definitions:
            self._reach((module.name, name))
        elif name in module.imports:
            self._refer(module.imports[name])

    def _visit_text(self, text: str, module: Module) -> None:
        if _DOTTED.fullmatch(text):
            self._refer(text.replace(":", "."))
        elif text.isidentifier():
            self._name_method(text)
            if text[0].isupper():  # a type in quotes
                self._visit_name(text, module)

    def _name_method(self, name: str) -> None:
        if name in self.names:
            return
        self.names.add(name)
        for key in self._methods.pop(name, ()):
            self._reach(key)
        for module in self._open:
            if name in self.modules[module].definitions:
                self._reach((module, name))

    def _open_package(self, prefix: str) -> None:
        """Modules that are loaded by a name known at run time: their names count as attributes."""
        for name, module in self.modules.items():
            if name.startswith(prefix) and name not in self._open:
                self._open.add(name)
                self._reach((name, ""))
                last = name.rpartition(".")[2]
                for each in (self.names | {last}) & set(module.definitions):
                    self._reach((name, each))


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def modules_under(folder: Path, prefix: str) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        parts = [prefix, *path.relative_to(folder).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        yield parse(path, ".".join(parts))


def idle_names(root: Path = ROOT) -> list[str]:
    """Functions, classes and methods of `src` that no entry point reaches, as `module:name`."""
    modules = {each.name: each for each in modules_under(root / "src" / PACKAGE, PACKAGE)}
    sources = list(modules)
    for folder in SCRIPTS:
        modules |= {each.name: each for each in modules_under(root / folder, folder)}
    walk = Walk(modules)
    for name in _public_names(modules[PACKAGE]):
        walk.publish(f"{PACKAGE}.{name}")
    for entry in entry_points(root, modules):
        walk.start(entry)
    return [
        f"{name}:{key}"
        for name in sources
        for key, owner in _definitions(modules[name])
        if (name, key) not in walk.reached and (owner is None or (name, owner) in walk.reached)
    ]


def entry_points(root: Path, modules: dict[str, Module]) -> Iterator[str]:
    """The programs of the project, its `python -m` modules, and all names of the scripts."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield from project["scripts"].values()
    for name, module in modules.items():
        if name.endswith(".__main__"):
            yield name
        elif name.split(".")[0] in SCRIPTS:
            yield from (name, *(f"{name}:{each}" for each in module.definitions))


def _public_names(package: Module) -> list[str]:
    (node,) = package.definitions["__all__"]
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]  # type: ignore[misc]


def _definitions(module: Module) -> Iterator[tuple[str, str | None]]:
    """Names of functions, classes and methods; a method with the class that owns it."""
    for name, nodes in module.definitions.items():
        for node in nodes:
            if isinstance(node, _DEFINITIONS):
                yield name, None
            if isinstance(node, ast.ClassDef):
                for each in node.body:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{name}.{each.name}", name


def main() -> int:
    idle = idle_names(Path(sys.argv[1]) if sys.argv[1:] else ROOT)
    for name in idle:
        if name not in EXCEPTIONS:
            print(f"{name} is reached only by tests, or by nothing")
    return 1 if set(idle) - set(EXCEPTIONS) else 0


if __name__ == "__main__":
    sys.exit(main())
