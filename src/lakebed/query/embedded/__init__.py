"""The embedded engine: DataFusion, in this process, without a JVM. The only package that imports
it.
"""

import os

# Its threads, which are one for each core if nobody says otherwise. A join that finds nothing comes
# to no pause: it keeps its thread until it is through, stopped or not, and others need one as well.
os.environ.setdefault("TOKIO_WORKER_THREADS", str(max(32, 4 * (os.cpu_count() or 1))))
