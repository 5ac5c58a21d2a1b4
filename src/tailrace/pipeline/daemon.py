"""The process that Spark forks its Python workers from, with everything loaded that our tasks use.

Else each worker would load it for itself: seconds of work for every worker at the start, and again for one that died. Named by
`spark.python.daemon.module`.
"""

from pyspark import daemon

from tailrace.pipeline.kernels import load_kernels

if __name__ == "__main__":
    load_kernels()
    daemon.manager()
