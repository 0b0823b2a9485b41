"""A real job under a load that rises and falls, on one machine and in a few minutes.

`plan` says what is played: the load, the pace per record, and how much faster than in earnest time
passes. `stage` puts it on: a broker, a cluster, a producer, a query, and Penstock attached to it.
"""
