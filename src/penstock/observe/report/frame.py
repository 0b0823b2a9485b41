"""What every page has around its body: one HTML file that carries its style, script and numbers.

Text from outside is never markup: bodies escape it, and data travels as JSON in which ``<`` cannot
occur, to be set as text by the script. The content policy of the page forbids it to load anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from string import Template

import msgspec


def template(name: str) -> str:
    """The text of a file that pages are made of."""
    return (files("penstock.observe.report") / "templates" / name).read_text(encoding="utf-8")


def framed(
    title: str,
    body: str,
    *,
    style: str = "",
    script: str = "",
    data: object = None,
    controls: str = "",
) -> str:
    """One self-contained page around a body; ``controls`` stand beside the switch for the theme.

    >>> page = framed("a < b", "<p>It is.</p>", data={"end": "</script>"})
    >>> "<title>a &lt; b</title>" in page, page.count("</script>")
    (True, 2)
    """
    return Template(template("frame.html")).substitute(
        title=escape(title),
        style=template("page.css") + style,
        controls=controls,
        body=body,
        data=_embedded(data),
        script=template("theme.js") + script,
    )


def figure(value: str, detail: str = "") -> str:
    """A number with a detail behind it, where there is one."""
    return f"{escape(value)} <small>{escape(detail)}</small>" if detail else escape(value)


def tiles(facts: Iterable[tuple[str, str, str]]) -> str:
    """Figures beside each other: the name of each, its value and a detail."""
    shown = (f"<dt>{escape(name)}</dt><dd>{figure(*rest)}</dd>" for name, *rest in facts)
    return f'<dl class="tiles">{"".join(f"<div>{each}</div>" for each in shown)}</dl>'


def table_section(title: str, kind: str, head: str, body: str, above: str = "") -> str:
    """A section of a page with one table; `head` and `body` are rows, `above` stands over it."""
    return (
        f'<section><h2>{escape(title)}</h2>{above}<div class="scroll"><table class="{kind}">'
        f"<thead>{head}</thead><tbody>{body}</tbody></table></div></section>"
    )


def _embedded(value: object) -> str:
    """JSON that can stand inside a script element: no ``<`` that could end it."""
    text = msgspec.json.encode(value).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
