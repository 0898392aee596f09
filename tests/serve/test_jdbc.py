"""Arrow's JDBC driver for FlightSQL, as Maven has it: user and password, with keys and without."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from lakebed.access.keys import Role
from lakebed.lake import Lake
from tests.parts.servers import unavailable
from tests.serve.parts import Served, serving

VERSION = "18.3.0"
DRIVER = (
    "https://repo1.maven.org/maven2/org/apache/arrow/flight-sql-jdbc-driver/"
    f"{VERSION}/flight-sql-jdbc-driver-{VERSION}.jar"
)
PROGRAM = """
import java.sql.*;
import java.util.Properties;

public class Ask {
    public static void main(String[] arguments) throws Exception {
        Properties login = new Properties();
        if (arguments.length > 1) {
            login.put("user", arguments[1]);
            login.put("password", arguments[2]);
        }
        try (Connection connection = DriverManager.getConnection(arguments[0], login);
             Statement statement = connection.createStatement();
             ResultSet rows = statement.executeQuery("SELECT 7 AS seven")) {
            while (rows.next()) System.out.println(rows.getLong(1));
        }
    }
}
"""

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def driver(pytestconfig: pytest.Config) -> Path:
    """The driver's archive, which pytest's cache keeps."""
    if shutil.which("javac") is None:
        unavailable("the JDBC driver", "there is no javac")
    assert pytestconfig.cache is not None
    archive = pytestconfig.cache.mkdir("jdbc") / f"driver-{VERSION}.jar"
    if not archive.exists():
        try:
            with urllib.request.urlopen(DRIVER, timeout=120) as answer:
                content = answer.read()
        except OSError as error:
            unavailable("the JDBC driver", error)
        archive.write_bytes(content)
    return archive


def ask(
    driver: Path, folder: Path, served: Served, *login: str
) -> subprocess.CompletedProcess[str]:
    """Run a statement with these credentials."""
    program = folder / "Ask.java"
    program.write_text(PROGRAM)
    port = served.server.ports["FlightSQL"]
    url = f"jdbc:arrow-flight-sql://127.0.0.1:{port}/?useEncryption=false"
    java = ["java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", str(driver), str(program)]
    return subprocess.run([*java, url, *login], capture_output=True, text=True, check=False)


def test_jdbc_takes_the_key_as_password(driver: Path, lake: Lake, tmp_path: Path) -> None:
    key = lake.keys.create("reader", [Role.READ]).secret
    with serving(lake) as served:
        done = ask(driver, tmp_path, served, "anybody", key)
        assert done.stdout == "7\n", done.stderr
        assert "the key is not known" in ask(driver, tmp_path, served, "anybody", "wrong").stderr
        assert "a key is needed" in ask(driver, tmp_path, served).stderr


def test_jdbc_connects_without_keys_with_and_without_credentials(
    driver: Path, lake: Lake, tmp_path: Path
) -> None:
    with serving(lake) as served:
        for login in ((), ("anybody", "secret")):
            done = ask(driver, tmp_path, served, *login)
            assert done.stdout == "7\n", done.stderr
