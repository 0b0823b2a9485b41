"""The model-predictive policy; the oracle of the lab uses its planner too.

The state of a job is the size of its fleet and its lag: how many seconds of arrivals wait, which
means the same at any load.

- A dataflow (Flink-like) with capacity C under load L increases its lag by ``1 - C/L`` per second,
  and a record that leaves has waited for the lag.
- A micro-batch job runs one batch over all that waits. Over x seconds of arrivals a batch takes
  ``fixed + L x / C`` seconds; that is how much arrives meanwhile, so it is the next x. Its records
  have waited between one and two batches.

Time goes in steps about as long as an executor takes to start: executors asked for in one step work
in the next, removed ones are gone at once. A step costs the executors that are paid for, the
records that will be late, and the moves. Working backwards from the horizon gives the least cost
from every state on (`dynamic_program.solve`); the best size now is the one whose own cost and the
cost of what it leads to are least (`first_costs`).

Uncertainty is a state too: the load follows one of a few scenarios, and between two steps it may
change from one to another. Such a plan knows that it will see what comes and can still react.

`penstock` is the policy; `planning` its plan; `forecasters`, `days` and `surges` what may come;
`capacity`, `account` and `rescaling` what was learned of the job; `explanation` the reason.
"""
