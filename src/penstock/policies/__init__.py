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

POLICIES: dict[str, type[Policy]] = {
    "penstock": Penstock,
    "static": Static,
    "hpa": Hpa,
    "varga": Varga,
    "dhalion": Dhalion,
    "dhalion_adapted": DhalionAdapted,
    "ds2": Ds2,
    "ds2_adapted": Ds2Adapted,
    "conttune": ContTune,
    "throughput_table": ThroughputTable,
    "backlog_threshold": BacklogThreshold,
    "queueing": Queueing,
    "thresholds": Thresholds,
    "daedalus": Daedalus,
    "phoebe": Phoebe,
    "spark_dra": SparkDra,
    "spark_trigger_dra": SparkTriggerDra,
    "slots_and_queue": SlotsAndQueue,
    "dstreams_ratio": DstreamsRatio,
    "elastic_scaling": ElasticScaling,
    "keda_lag": KedaLag,
    "flink": Flink,
}
