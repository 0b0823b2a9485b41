"""The benchmark jobs by name."""

from __future__ import annotations

from penstock.core.errors import unknown
from penstock.testbed.jobs import images, pixel_queries, state_size, traffic, ysb
from penstock.testbed.jobs.image_records import PACKAGES
from penstock.testbed.jobs.job import BenchmarkJob, DemoLoad
from penstock.testbed.jobs.nexmark_jobs import NEXMARK_JOBS, NOT_EXPRESSIBLE
from penstock.testbed.jobs.wordcount import word_counts

_DAEDALUS = "Pfister et al., Daedalus, ICPE 2024"
_PULSAR = "Russo Russo et al., Elastic Pulsar Functions, ICPE 2021, section 5.1"
_TISSUE = "Borkowski et al., Minimizing Cost by Reducing Scaling Operations, PVLDB 2019"
#: Smaller Arrow batches: a photo takes 40 kB, and a worker holds a batch in memory.
_SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "256"}
_IMAGE_LOAD = DemoLoad(low_rps=8.0, peak_rps=60.0, pace_s=0.04)

__all__ = ["JOBS", "NOT_EXPRESSIBLE", "find_job"]

JOBS: dict[str, BenchmarkJob] = {
    job.name: job
    for job in (
        *NEXMARK_JOBS,
        BenchmarkJob(
            name="wordcount",
            summary="how often each word came",
            origin=f"{_DAEDALUS}, section 4.1.1",
            dataflow="words -> split -> count by word",
            pipeline=word_counts,
            streams=("words",),
            output_mode="update",
            state="a count for each of 10,000 words",
        ),
        BenchmarkJob(
            name="ysb",
            summary="views of advertisements per campaign and 10 s",
            origin=f"Yahoo Streaming Benchmark, as in {_DAEDALUS}, section 4.1.2",
            dataflow="ads -> views only -> join with campaigns -> count by campaign and window",
            pipeline=ysb.views_per_campaign,
            streams=("ads",),
            state="tumbling windows of 10 s",
        ),
        BenchmarkJob(
            name="traffic",
            summary="vehicles near a place and their speed, per area and 10 s",
            origin=f"{_DAEDALUS}, section 4.1.3",
            dataflow="vehicles -> within 1 km -> speed by vehicle and window"
            " -> mean by area and window",
            pipeline=traffic.speeds_per_area,
            streams=("vehicles",),
            state="tumbling windows of 10 s, twice",
        ),
        BenchmarkJob(
            name="state-size",
            summary="the last string of each key: state of 0.4 GB in RocksDB",
            origin="Varga et al., Towards autoscaling of Apache Flink jobs, 2021, section 5.1",
            dataflow="strings -> last string by key",
            pipeline=state_size.last_string_per_key,
            streams=("strings",),
            output_mode="update",
            state="100,000 strings of 4,096 characters, RocksDB",
            settings=state_size.state_settings(changelog=True),
            demo=DemoLoad(low_rps=100.0, peak_rps=800.0, pace_s=0.004),
        ),
        BenchmarkJob(
            name="images-recognise",
            summary="what each photo shows",
            origin=_PULSAR,
            dataflow="photos -> resize -> recognise (mapInPandas)",
            pipeline=images.recognise_photos,
            streams=("photos",),
            settings=_SMALL_BATCHES,
            packages=tuple(PACKAGES),
            compute_s=0.010,
            demo=_IMAGE_LOAD,
        ),
        BenchmarkJob(
            name="images-store",
            summary="a smaller copy of each photo",
            origin=_PULSAR,
            dataflow="photos -> resize -> encode (mapInPandas)",
            pipeline=images.store_photos,
            streams=("photos",),
            settings=_SMALL_BATCHES,
            packages=tuple(PACKAGES),
            compute_s=0.004,
            demo=_IMAGE_LOAD,
        ),
        BenchmarkJob(
            name="images-cells",
            summary="cells of each colour in images of tissue",
            origin=f"{_TISSUE}, section 3.2",
            dataflow="tissue -> blur -> split by colour -> edges -> count (mapInPandas)",
            pipeline=images.count_cells,
            streams=("tissue",),
            settings=_SMALL_BATCHES,
            packages=tuple(PACKAGES),
            compute_s=0.009,
            demo=_IMAGE_LOAD,
        ),
        BenchmarkJob(
            name="pixel-queries",
            summary="one pixel in the last 1,000 images of a tissue sample",
            origin=f"{_TISSUE}, section 3.2",
            dataflow="tissue -> keep a raster (mapInPandas)"
            " -> window and answers by sample (applyInPandasWithState)",
            pipeline=pixel_queries.answer_pixel_queries,
            streams=("tissue",),
            state="rasters of 1,000 images for each of 16 samples",
            settings=_SMALL_BATCHES,
            packages=tuple(PACKAGES),
            compute_s=0.004,
            # A divisor of the 16 samples keeps the events of a sample in one partition, in order.
            partitions=8,
            demo=_IMAGE_LOAD,
        ),
    )
}


def find_job(name: str) -> BenchmarkJob:
    """The job of that name.

    >>> find_job("wordcont")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: unknown job 'wordcont': did you mean 'wordcount'? ...
    """
    if name not in JOBS:
        raise unknown("job", name, JOBS)
    return JOBS[name]
