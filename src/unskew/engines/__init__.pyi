"""Engines: this process, a GPU, a Spark cluster, files on disk."""

from unskew.engines.disk.engine import DiskEngine as DiskEngine
from unskew.engines.gpu.engine import GpuEngine as GpuEngine
from unskew.engines.local import LocalEngine as LocalEngine
from unskew.engines.spark.engine import SparkEngine as SparkEngine
