"""A real job under a load that rises and falls, on one machine and in a few minutes.

`plan` says what runs: the job, the load, the pace per record, and how much faster than in real life
time passes. `environment` starts it: a broker, a cluster, a producer and a query. `attached`
attaches Penstock to it.
"""
