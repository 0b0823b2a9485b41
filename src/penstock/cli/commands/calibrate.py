"""``penstock calibrate``: a simulated engine that does what a recorded job did."""

from pathlib import Path
from typing import Annotated

from penstock.cli.options import about, amount
from penstock.cli.output import console, print_json, read_journal_steps
from penstock.core.errors import ConfigError
from penstock.simulation.calibration.calibrate import Fitted, calibrated


def calibrate(
    journal: Annotated[Path, about("journal")],
    /,
    *,
    part: Annotated[float, amount(unit="FRACTION"), about("calibrate.part")] = 0.5,
    json: Annotated[bool, about("calibrate.json")] = False,
) -> int:
    """Fit a simulated engine to the first part of a run, and say how well it predicts the rest.

    The prediction gets only what arrived and how many executors there were.
    """
    if not 0.0 < part < 1.0:
        raise ConfigError(f"--part must lie between 0 and 1, not {part:g}")
    fitted = calibrated(read_journal_steps(journal), part)
    if json:
        print_json(fitted)
    else:
        _print_fit(fitted)
    return 0


def _print_fit(fitted: Fitted) -> None:
    screen = console()
    screen.print(
        f"{fitted.engine} engine, fitted on {fitted.fitted_rows} samples, judged on the "
        f"{fitted.judged_rows} after them"
    )
    capacity = ", ".join(f"{n}: {rps:,.0f}/s" for n, rps in fitted.capacity_rps.items())
    screen.print(f"capacity by executors: {capacity}")
    for name, value in fitted.found.items():
        screen.print(f"  {name:<24} {value:.4g}")
    screen.print("errors on the samples that it had not seen:", style="bold")
    for name in ("throughput", "delay", "cpu", "busy"):
        value = getattr(fitted.errors, name)
        screen.print(f"  {name:<24} {'not measured' if value is None else f'{value:.1%}'}")
