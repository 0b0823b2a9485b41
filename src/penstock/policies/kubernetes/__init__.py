"""The replica arithmetic of Kubernetes' horizontal pod autoscaler and of KEDA's Kafka scaler.

Rules as of Kubernetes 1.38 and KEDA 2.20, in small files that can be read one by one:

``pods``
    which pods count
``metrics``
    what one metric asks for
``stabilization``
    what past recommendations allow
``behavior``
    how fast it may go
``reconcile``
    the whole pass
``keda``
    from Kafka offsets to a metric
``pacing``
    stabilisation and limits for policies, with a small memory

Nothing here knows Penstock's policies; they call it.
"""
