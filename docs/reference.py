"""Pages of the reference that are generated: command line, configuration, reason codes."""

from __future__ import annotations

import inspect
import re
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from cyclopts import Argument
from msgspec import NODEFAULT
from msgspec.structs import fields

from penstock.cli.app import app
from penstock.cli.overview import EXIT_CODES, command_texts
from penstock.core.model import Limits
from penstock.core.schedule import ScheduledLimit
from penstock.policies import DEFAULT_POLICY, POLICIES
from penstock.settings.goal import Goal
from penstock.settings.spark_conf import KEYS
from penstock.settings.toml import JournalSettings, LiveSettings
from penstock.spark.attach import attach
from tools.reason_codes import find_codes

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "penstock"

CLI_HEAD = """\
# Command line

Generated from the parser by `make docs`; `penstock COMMAND --help` prints the same. Time spans are `90s`, `10min`, `2h20min`; numbers take
`k M G %`. {exit_codes} Mistakes are one sentence on standard error. Every command has `--help`, the program itself `--version`.

| command | what it does |
|---|---|
"""

CONFIGURATION_HEAD = """\
# Configuration

Generated from the types by `make docs`. The same settings can be written in four places. What is nearer to the job wins: **arguments of
`attach` and options** win over the **Spark configuration**, that over **`penstock.toml`**, that over the defaults. `penstock doctor job.py` prints
where each value of a job comes from, `penstock init` writes a `penstock.toml` with every key explained.

```toml
[policy]
name = "penstock"

[limits]
max_executors = 8

[goal]
slo_s = 10

[journal]
path = "live.jsonl"
```

- In `penstock.toml` time spans are seconds. In the Spark configuration, in `attach` and on the command line they may be texts: `"90s"`, `"10min"`.
- A limit without an argument of its own goes into `limits`: `attach(spark, limits={"cooldown_s": 60})`. It may also stand in the policy
  text, which works everywhere: `ds2:cooldown=60s`.
- Options are those of `penstock run`. A key or value that cannot work is one sentence with its place and what is allowed. In a job that
  is scaled by configuration alone it is a warning, and the job runs.
- `spark.penstock.enabled=true` attaches to a script that does not call `attach`. `spark.penstock.config`, or `--config`, names the `penstock.toml`.
  `PENSTOCK_HOOK=off` in the environment of the driver switches the configuration off.

"""
TABLES: dict[str, tuple[type[Any], str]] = {
    "limits": (Limits, "What holds for every policy."),
    "goal": (Goal, "What is asked of the job, and what it costs."),
    "live": (LiveSettings, "How a running job is attached to, and where its numbers go."),
    "journal": (JournalSettings, "Where each decision is written."),
}
#: Arguments and options that are not called like their key.
ARGUMENTS = {"min_executors": "min", "max_executors": "max", "path": "journal"}
OPTIONS = {"mode": "--recommend", "name": "--policy", "path": "--journal"}

CODES_HEAD = """\
# Reason codes

Every decision has at least one reason: a code for programs, a sentence with numbers for people, and the numbers themselves. `penstock explain
live.jsonl --code at_maximum` finds them, the metric `penstock_decisions_total` counts them. The first reason is that of the policy; a guard that overrides it adds
its own. Codes are added, not renamed. [How to read a decision](howto/read-a-decision.md) shows one piece by piece.

Generated from `docs/reason_codes.toml` by `make docs`. "Nothing" means that the decision is part of normal work: it needs nobody at 3 a.m.
"""
CODE_SECTIONS = {
    "core": "With every policy\n\nFrom the loop and the guards.",
    "default": f"The default policy\n\nFrom `{DEFAULT_POLICY}`.",
    "policies": "Other policies",
    "lab": "In the lab only",
}


def cli() -> str:
    """docs/cli.md: every command with its arguments, options and examples."""
    texts = command_texts()
    lines = [CLI_HEAD.format(exit_codes=EXIT_CODES)[:-1]]
    lines += [f"| [`{name}`](#{name}) | {_cell(text['help'])} |" for name, text in texts.items()]
    for name, text in texts.items():
        arguments = [each for each in app[name].assemble_argument_collection() if each.show]
        lines += ["", f"## {name}", "", text["help"], ""]
        lines += ["| argument or option | what it is | default |", "|---|---|---|"]
        lines += map(_argument_row, arguments)
        lines += ["", "```sh", *(f"penstock {name} {each}".rstrip() for each in text["examples"])]
        lines += ["```"]
    return "\n".join(lines) + "\n"


def _argument_row(argument: Argument) -> str:
    kind = argument.parameter.metavar or _kind(argument.hint)
    shown = f"{argument.name} {kind}".strip() if argument.name.startswith("-") else argument.name
    text, _, default = (argument.parameter.help or "").partition(" [default: ")
    value = argument.field_info.default
    if not default and value not in (None, False, inspect.Parameter.empty):
        default = f"{value:g}" if isinstance(value, float) else str(value)
    default = "required" if argument.required else default.rstrip("]")
    return f"| `{_cell(shown)}` | {_cell(text)} | {_cell(default)} |"


def _kind(hint: Any) -> str:
    """What an option takes, in one word; a flag takes nothing."""
    kinds = [each for each in get_args(hint) if each is not types.NoneType] or [hint]
    texts = [f"'{each}'" for each in kinds if isinstance(each, str)]
    if texts:
        return "|".join(each.strip("'") for each in texts)
    if kinds[0] is bool:
        return ""
    name = str(getattr(kinds[0], "__name__", kinds[0]))
    return {"str": "TEXT", "Path": "FILE", "list": "TEXT...", "int": "N", "float": "NUMBER"}.get(
        name, "TEXT"
    )


def configuration() -> str:
    """docs/configuration.md: each setting in its four spellings."""
    keys = {place: key for key, place in KEYS.items()}
    arguments = set(inspect.signature(attach).parameters)
    options = {name for each in app["run"].assemble_argument_collection() for name in each.names}
    head = "| `penstock.toml` | Spark conf | `attach` | option | default | what it is |"
    lines = [CONFIGURATION_HEAD + "## [policy]", "", head, "|---|---|---|---|---|---|"]
    lines.append(
        f"| `name` | `{keys['policy', 'name']}` | `policy` | `{OPTIONS['name']}` | "
        f"`{DEFAULT_POLICY}` | A [policy](policies.md), or a policy text such as "
        "`ds2:overprovisioning=0.3`. In the file its parameters may follow as keys. |"
    )
    for table, (kind, about) in TABLES.items():
        texts = parameter_texts(kind)
        lines += ["", f"## [{table}]", "", about, "", head, "|---|---|---|---|---|---|"]
        for field in fields(kind):
            name = field.name
            if (table, name) == ("limits", "schedule"):
                continue
            argument = ARGUMENTS.get(name, name)
            given = f"`{argument}`" if argument in arguments else "`limits`" * (table == "limits")
            option = OPTIONS.get(name, "--" + argument.removesuffix("_s").replace("_", "-"))
            shown = f"`{option}`" if option in options else ""
            lines.append(
                f"| `{name}` | `{keys[table, name]}` | {given} | {shown} | {_default(field)} | "
                f"{_cell(texts[name])} |"
            )
    lines += ["", "## [[schedule]]", "", "Floors, ceilings and quiet periods at certain times, as "]
    lines[-1] += f"many tables as there are rules; `{keys['limits', 'schedule']}` takes them as a "
    lines[-1] += "JSON list. [An example](live.md#known-peaks-and-quiet-periods)."
    lines += ["", "| key | default | what it is |", "|---|---|---|"]
    texts = parameter_texts(ScheduledLimit)
    for field in fields(ScheduledLimit):
        lines.append(f"| `{field.name}` | {_default(field)} | {_cell(texts[field.name])} |")
    only = sorted(arguments - set(_arguments_with_keys()) - {"spark", "policy", "limits"})
    lines += ["", f"Only in Python: {', '.join(f'`{name}`' for name in only)} of `attach`."]
    return "\n".join(lines) + "\n"


def _arguments_with_keys() -> Iterator[str]:
    for kind, _ in TABLES.values():
        for field in fields(kind):
            yield ARGUMENTS.get(field.name, field.name)


def _default(field: Any) -> str:
    if field.default is NODEFAULT:
        return "" if field.default_factory is not NODEFAULT else "required"
    value = field.default
    if value in (None, ""):
        return "not set"
    if isinstance(value, bool):
        value = str(value).lower()
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def parameter_texts(kind: type[Any]) -> dict[str, str]:
    """What the docstring of a type says of each of its fields.

    >>> parameter_texts(JournalSettings)["keep"]
    'How many rotated files stay.'
    """
    section = re.split(r"^Parameters\n-+\n", inspect.getdoc(kind) or "", flags=re.MULTILINE)[1]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.split(",")]
        else:
            for name in names:
                found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return {name: text.replace("``", "`") for name, text in found.items()}


def reason_codes() -> str:
    """docs/reason-codes.md: what each code means and what to do, by who gives it."""
    texts: dict[str, list[str]] = tomllib.loads((HERE / "reason_codes.toml").read_text("utf-8"))
    codes = find_codes()
    if missing := sorted(set(codes) - set(texts)):
        raise SystemExit(f"docs/reason_codes.toml says nothing about {', '.join(missing)}")
    if needless := sorted(set(texts) - set(codes)):
        raise SystemExit(f"docs/reason_codes.toml: nothing in src gives {', '.join(needless)}")
    lines = [CODES_HEAD]
    for section, title in CODE_SECTIONS.items():
        is_shared = section == "policies"
        lines += [f"## {title}", "", "| code | what it means | what to do |", "|---|---|---|"]
        for code, (meaning, action) in texts.items():
            if section_of(codes[code]) == section:
                by = f" ({', '.join(emitters(codes[code]))})" if is_shared else ""
                lines.append(f"| `{code}` | {_cell(meaning)}{by} | {_cell(action)} |")
        lines.append("")
    return "\n".join(lines)


def section_of(modules: set[str]) -> str:
    """Where a code is listed, by the modules that give it."""
    for package in ("core", "lab"):
        if any(module.startswith(f"{package}.") for module in modules):
            return package
    own = {module for module in modules if module.startswith(f"policies.{DEFAULT_POLICY}.")}
    return "default" if own else "policies"


def emitters(modules: set[str]) -> list[str]:
    """The policies that can give a code: those in whose files, or imports, it is.

    >>> emitters({"policies.ds2_adapted"}), emitters({"policies.kubernetes.pacing"})
    (['ds2_adapted'], ['hpa', 'varga', 'keda_lag'])
    """
    found = []
    for name, kind in POLICIES.items():
        own = kind.__module__.removeprefix("penstock.")
        text = (SOURCE / Path(*own.split("."))).with_suffix(".py").read_text("utf-8")
        folder = own.rpartition(".")[0]
        for module in modules:
            parent, _, last = module.rpartition(".")
            beside = parent == folder != "policies" and re.search(rf"\b{last}\b", text)
            shared = parent == "policies.algorithms" and re.search(rf"\b{last}\b", text)
            if own == module or beside or shared:
                found.append(name)
                break
    return found


def _cell(text: str) -> str:
    """The text as it is written inside a table, where a bar would end the cell."""
    return " ".join(text.split()).replace("|", r"\|")
