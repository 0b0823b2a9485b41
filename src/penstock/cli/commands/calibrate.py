"""``penstock calibrate``: an engine on paper that does what a recorded job did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.views.output import console, print_json
from penstock.core.errors import ConfigError
from penstock.core.journal import read_header, read_rotated
from penstock.simulation.calibration.calibrate import Fitted, calibrated


def calibrate(
    journal: Path,
    /,
    *,
    part: float = 0.5,
    json: Annotated[bool, Parameter(help="The fitted job and its errors as JSON.")] = False,
) -> int:
    """Fit an engine to the first part of a run, and say how well it predicts the rest.

    The prediction is given what arrived and how many executors there were, and nothing else.

    Parameters
    ----------
    journal
        A journal written by simulate or by a live run.
    part
        The part of the run to fit on; the rest is judged.
    """
    if not 0.0 < part < 1.0:
        raise ConfigError(f"--part must lie between 0 and 1, not {part:g}")
    read_header(journal)
    steps = list(read_rotated(journal))
    if not steps:
        raise ConfigError(f"journal {journal} holds no step")
    fitted = calibrated(steps, part)
    if json:
        print_json(fitted)
    else:
        _tell(fitted)
    return 0


def _tell(fitted: Fitted) -> None:
    screen = console()
    screen.print(
        f"{fitted.engine} engine, fitted on {fitted.fitted_rows} samples, judged on the "
        f"{fitted.judged_rows} after them",
        markup=False,
    )
    capacity = ", ".join(f"{n}: {rps:,.0f}/s" for n, rps in fitted.capacity_rps.items())
    screen.print(f"capacity by executors: {capacity}", markup=False)
    for name, value in fitted.found.items():
        screen.print(f"  {name:<24} {value:.4g}", markup=False)
    screen.print("off on what it had not seen:", style="bold")
    for name in ("throughput", "delay", "cpu", "busy"):
        value = getattr(fitted.errors, name)
        shown = "not measured" if value is None else f"{value:.1%}"
        screen.print(f"  {name:<24} {shown}", markup=False)
