"""One rule from the literature per file; file name = table name = name on the command line."""

from penstock.core.protocols import Policy
from penstock.policies.backlog_threshold import BacklogThreshold
from penstock.policies.conttune import ContTune
from penstock.policies.daedalus.daedalus import Daedalus
from penstock.policies.dhalion import Dhalion
from penstock.policies.dhalion_adapted import DhalionAdapted
from penstock.policies.ds2 import Ds2
from penstock.policies.ds2_adapted import Ds2Adapted
from penstock.policies.dstreams_ratio import DstreamsRatio
from penstock.policies.elastic_scaling import ElasticScaling
from penstock.policies.flink.flink import Flink
from penstock.policies.kubernetes.hpa import Hpa
from penstock.policies.kubernetes.keda_lag import KedaLag
from penstock.policies.kubernetes.varga import Varga
from penstock.policies.penstock.penstock import Penstock
from penstock.policies.phoebe import Phoebe
from penstock.policies.queueing.queueing import Queueing
from penstock.policies.slots_and_queue import SlotsAndQueue
from penstock.policies.spark_dra import SparkDra
from penstock.policies.spark_trigger_dra import SparkTriggerDra
from penstock.policies.static import Static
from penstock.policies.thresholds.thresholds import Thresholds
from penstock.policies.throughput_table import ThroughputTable

DEFAULT_POLICY = "penstock"  #: What runs where nothing else is asked for.

_TABLE: tuple[type[Policy], ...] = (
    Penstock, Static, Hpa, Varga, Dhalion, DhalionAdapted, Ds2, Ds2Adapted, ContTune,
    ThroughputTable, BacklogThreshold, Queueing, Thresholds, Daedalus, Phoebe, SparkDra,
    SparkTriggerDra, SlotsAndQueue, DstreamsRatio, ElasticScaling, KedaLag, Flink,
)  # fmt: skip
#: Every policy by the name of its module, which is its name on the command line.
POLICIES = {kind.__module__.rpartition(".")[2]: kind for kind in _TABLE}
