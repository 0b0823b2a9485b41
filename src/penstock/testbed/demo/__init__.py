"""A real job under a load that rises and falls, on one machine and in a few minutes.

`plan` says what is played: the load, the pace per record, and how much faster than in earnest time
passes. `scene` puts it on: a broker, a cluster, a producer and a query. `stage` attaches Penstock
to it.

For the live comparison, `observer` measures a scene whoever sizes its fleet, `trial` is one such
run, `contest` all of them, and `forecast` what the simulation says of each.
"""
