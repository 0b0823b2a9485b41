"""Find equal runs of at least 10 lines in `src`; exit code 1 if there are any.

Blank lines, comments, imports and docstrings are left out, indentation is ignored.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LENGTH = 10


def code_lines(source: str) -> list[tuple[int, str]]:
    """The lines that count, without indentation, each with its number.

    >>> code_lines('\"\"\"Docs.\"\"\"\\nimport os\\n\\ndef f():\\n    # why\\n    return  1\\n')
    [(4, 'def f():'), (6, 'return 1')]
    """
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_text:
            assert isinstance(node, ast.stmt)
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return [
        (number, " ".join(line.split()))
        for number, line in enumerate(source.splitlines(), start=1)
        if number not in left_out and line.strip() and not line.lstrip().startswith("#")
    ]


def duplicates(sources: dict[str, str], length: int = LENGTH) -> Iterator[tuple[str, str, int]]:
    """Two places, as `file:line`, and how many lines are equal from there on.

    >>> body = "\\n".join(f"a{n} = {n}" for n in range(12))
    >>> list(duplicates({"x.py": body, "y.py": "b = 1\\n" + body}))
    [('x.py:1', 'y.py:2', 12)]
    """
    lines = {name: code_lines(source) for name, source in sources.items()}
    seen: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    reported: set[tuple[str, int, str, int]] = set()
    for name, found in lines.items():
        texts = [text for _, text in found]
        for start in range(len(texts) - length + 1):
            window = tuple(texts[start : start + length])
            for other, begin in seen[window]:
                if other == name and begin + length > start:
                    continue  # a run that repeats itself line by line
                if (other, begin - 1, name, start - 1) not in reported:
                    equal = _equal(lines[other][begin:], found[start:])
                    yield f"{other}:{lines[other][begin][0]}", f"{name}:{found[start][0]}", equal
                reported.add((other, begin, name, start))
            seen[window].append((name, start))


def _equal(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a[1] != b[1]), min(len(one), len(other)))


def main() -> int:
    paths = sorted((ROOT / "src").rglob("*.py"))
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    found = list(duplicates(sources))
    for one, other, equal in found:
        print(f"{equal} equal lines at {one} and {other}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
