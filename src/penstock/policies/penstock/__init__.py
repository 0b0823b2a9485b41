"""The model-predictive policy, which docs/planner.md explains; the oracle of the lab plans with it.

The state of a job is the size of its fleet and its lag: how many seconds of arrivals wait. A
dataflow with capacity C under load L increases its lag by ``1 - C/L`` per second. A micro-batch
over x seconds of arrivals takes ``fixed + L x / C`` seconds, which is the next x. Working backwards
from the horizon gives the least cost from every state on (`dynamic_program.solve`); the load
follows one of a few scenarios and may change between them, so a plan knows that it can still react.

`penstock` is the policy; `planning` its plan; `forecasters`, `days` and `surges` what may come;
`capacity`, `account` and `rescaling` what was learned of the job; `explanation` the reason.
"""
