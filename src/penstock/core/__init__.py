"""The control loop and its values: controller, protocols, model, knowledge, guards, journal, clock.

Start reading at `controller`. Nothing here knows a policy, an engine or Spark.
"""
