"""The queueing policy of the Pulsar study and the formulas of its model."""
