"""The arithmetic of the autoscaler in Apache Flink's Kubernetes operator.

Rules as of apache/flink-kubernetes-operator 6e9caeb (July 2026, 1.16-SNAPSHOT), in small files
that can be read one by one:

``options``
    what can be set, with the operator's defaults
``windows``
    rates and means over samples, and when a window of them is full
``capacity``
    what a vertex could process if it were busy all the time
``demand``
    what a vertex would have to process, and the band in which nothing is done
``evaluation``
    both, for all vertices of a job, from raw samples
``alignment``
    a parallelism that divides partitions or key groups well
``history``
    pending scale downs, past scalings, measured restarts
``vertex``
    the new parallelism of one vertex
``job``
    all vertices together: all or nothing, slots, quotas
``memory``
    pressure, and the sizes of a worker's memory pools
``periods``, ``cron``
    times at which nothing may be scaled
``sight``, ``outlook``
    Penstock's snapshots as the autoscaler would see them, and its findings in words

A vertex is a chain of operators that runs as one task; its parallelism is how many of them run
at once. ``None`` is "unknown", infinite is "idle, so without limit". Nothing here knows
Penstock's policies; they call it.
"""
