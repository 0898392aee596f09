"""From payload to Arrow: pure functions that run at landing, on Spark executors, and for the
fresh tail. They know no catalog, store or session.
"""
