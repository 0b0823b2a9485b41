"""The plan that the model-predictive policy and the oracle share: dynamic programming.

A job is described by how many executors it has and how far behind it is. "Behind" is counted in
seconds of arrivals that wait, so that it means the same at any load:

- A dataflow (Flink-like) with capacity C under load L falls behind by ``1 - C/L`` per second, and a
  record that leaves has waited for as long as the job is behind.
- A micro-batch job runs one batch over all that waits. Over x seconds of arrivals a batch takes
  ``fixed + L x / C`` seconds; that is how much has come meanwhile, so it is the next x. Its
  records have waited between one and two batches.

Time goes in steps about as long as an executor takes to start: those asked for in one step work in
the next, those sent away are gone at once. A step costs the executors that are paid for, the
records that will be late, and the moves. Working backwards from the horizon gives the least cost
from every state on (`solve`); the best move now is the one whose own cost and the cost of what it
leads to (`first_costs`) are least.

What is uncertain is a state too: the load follows one of a few courses, and between two steps it
may change from one to any other. A plan that is made this way knows that it will see what comes
and can still react, so it neither insures against everything now nor counts on knowing it all.

`delay` says how far behind a job falls, `programme` finds the plan, `courses` says what may come,
`sight` is all that a plan is made from at one instant, and `words` tells a decision in a sentence.
"""
