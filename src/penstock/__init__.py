"""Penstock keeps a Spark Structured Streaming job at the right size while it runs.

::

    import penstock

    penstock.attach(spark, policy="ds2", min=2, max=8)                    # scale a running job
    run = penstock.simulate("ds2:overprovisioning=0.3", "sine", seed=1)   # or a simulated one
    rows = penstock.compare(["penstock", "hpa"], ["diurnal"], seeds=[1, 2, 3])

Stable are the names in ``__all__`` with their documented arguments and fields, the command line,
penstock.toml and the journal's format. Every other module and name may change in any release.
docs/api.md says what that means.

Each name is loaded when it is first used: ``import penstock`` itself loads nothing.
"""

TYPE_CHECKING = False  # what `typing` calls so; importing it would double the time
if TYPE_CHECKING:
    from penstock.core.errors import ActuatorError, ConfigError, PenstockError, SensorError
    from penstock.core.knowledge import Knowledge
    from penstock.core.model import (
        Batch,
        Decision,
        ExecutorSample,
        Fleet,
        Limits,
        OperatorSample,
        Reason,
        Snapshot,
        Step,
        not_measured,
    )
    from penstock.core.protocols import Policy
    from penstock.lab.api import compare, simulate
    from penstock.lab.journal_frames import read_journals
    from penstock.observe.recording import read_journal
    from penstock.policies import checks
    from penstock.settings.goal import Goal
    from penstock.settings.policy_spec import read_policy_spec
    from penstock.spark.attach import Attachment, attach

__version__ = "0.1.0"

__all__ = [
    "ActuatorError",
    "Attachment",
    "Batch",
    "ConfigError",
    "Decision",
    "ExecutorSample",
    "Fleet",
    "Goal",
    "Knowledge",
    "Limits",
    "OperatorSample",
    "PenstockError",
    "Policy",
    "Reason",
    "SensorError",
    "Snapshot",
    "Step",
    "__version__",
    "attach",
    "checks",
    "compare",
    "not_measured",
    "read_journal",
    "read_journals",
    "read_policy_spec",
    "simulate",
]

#: The public names of each module; those that are not listed are in core.model.
_PLACES = {
    "core.errors": ("ActuatorError", "ConfigError", "PenstockError", "SensorError"),
    "core.knowledge": ("Knowledge",),
    "core.protocols": ("Policy",),
    "lab.api": ("compare", "simulate"),
    "lab.journal_frames": ("read_journals",),
    "observe.recording": ("read_journal",),
    "policies.checks": ("checks",),
    "settings.goal": ("Goal",),
    "settings.policy_spec": ("read_policy_spec",),
    "spark.attach": ("Attachment", "attach"),
}


if not TYPE_CHECKING:  # type checkers know the names from the imports above

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'penstock' has no attribute '{name}'")
        from importlib import import_module

        place = next((where for where, names in _PLACES.items() if name in names), "core.model")
        module = import_module(f"penstock.{place}")
        value = globals()[name] = module if name == "checks" else getattr(module, name)
        return value

    def __dir__():
        return __all__
