"""The running engine: sensor, actuator, attach, doctor.

The only package that knows Spark's driver; `internals` is the only part that goes behind
Spark's public interface.
"""
