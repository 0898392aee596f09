"""The embedded engine: DataFusion, in this process, without a JVM. The only package that imports
it.
"""

import os

# Number of the engine's threads, by default one for each core. A join without matches never yields:
# it occupies its thread until it ends, also when it was stopped, and other statements need threads.
os.environ.setdefault("TOKIO_WORKER_THREADS", str(max(32, 4 * (os.cpu_count() or 1))))
