"""A real Kafka broker and a real Spark cluster on one machine, in one call.

::

    with Testbed(slots=8) as bed:
        bed.create_topic("bids", partitions=16)
        bed.bootstrap_servers, bed.master_url, bed.spark_conf(initial_executors=2)
        bed.pause_broker(), bed.resume_broker(), bed.kill_executor()

Start reading at `bed.py`. `keeper.py` says why no process stays behind.
"""

from penstock.testbed.bed import Testbed
from penstock.testbed.java import find_java
from penstock.testbed.pace import paced
from penstock.testbed.processes import wait_until
from penstock.testbed.servers import Broker

__all__ = ["Broker", "Testbed", "find_java", "paced", "wait_until"]
