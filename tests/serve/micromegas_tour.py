"""What programs do with micromegas' client; run by an interpreter that has it and nothing of ours.
Prints what came out as JSON.
"""

import contextlib
import inspect
import io
import json
import sys
from datetime import UTC, datetime, timedelta

import micromegas
from micromegas import admin


def main(uri: str) -> None:
    """The tour; older clients know one address only."""
    takes_uri = "uri" in inspect.signature(micromegas.connect).parameters
    client = micromegas.connect(uri) if takes_uri else micromegas.connect()
    far = datetime.now(UTC) + timedelta(days=3650)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    said = {}
    count = "SELECT count(*) AS n FROM log_entries"
    said["query"] = int(client.query(count)["n"].iloc[0])
    said["in range"] = int(client.query(count, long_ago, far)["n"].iloc[0])
    said["out of range"] = int(
        client.query(count, long_ago, long_ago + timedelta(days=1))["n"].iloc[0]
    )
    said["arrow"] = client.query_arrow(count, long_ago, far).to_pydict()
    everything = "SELECT * FROM log_entries"
    said["stream"] = sum(each.num_rows for each in client.query_stream(everything))
    said["empty columns"] = len(client.query(f"{everything} WHERE false").columns)
    prepared = client.prepare_statement("SELECT msg FROM log_entries LIMIT 3")
    said["prepared"] = sum(each.num_rows for each in client.prepared_statement_stream(prepared))
    known = client.query("SELECT process_id, stream_id FROM blocks LIMIT 1").iloc[0]
    said["processes"] = len(client.find_process(known["process_id"]).columns)
    said["streams"] = len(client.query_streams(long_ago, far, 10).columns)
    said["blocks"] = len(client.query_blocks(long_ago, far, 10, known["stream_id"]))
    told = io.StringIO()
    now = datetime.now(UTC)
    with contextlib.redirect_stdout(told):
        day = timedelta(days=1)
        client.materialize_partitions("log_stats", now - day, now + day, 3600)
    said["materialized"] = "published 1 partitions" in told.getvalue()
    said["stats"] = int(client.query("SELECT sum(count) AS n FROM log_stats")["n"].iloc[0])
    found = admin.list_incompatible_partitions(client)
    said["incompatible"] = len(found)
    said["columns"] = list(found.columns)
    with contextlib.redirect_stdout(io.StringIO()):
        done = admin.retire_incompatible_partitions(client)
        client.retire_partitions("readings", "global", long_ago, far)
    said["retired"] = int(done["partitions_retired"].sum())
    said["failed"] = int(done["partitions_failed"].sum())
    said["left"] = int(
        client.query(
            "SELECT count(*) AS n FROM list_partitions() WHERE view_set_name = 'readings'"
        )["n"].iloc[0]
    )
    try:
        client.query("SELEC 1")
    except Exception as error:  # noqa: BLE001
        said["bad"] = f"{type(error).__name__}: {'line 1, column 1' in str(error)}"
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
