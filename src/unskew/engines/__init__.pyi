"""Engines: a GPU, a Spark cluster."""

from unskew.engines.gpu.engine import GpuEngine as GpuEngine
from unskew.engines.spark.engine import SparkEngine as SparkEngine
