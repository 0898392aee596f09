"""What was seen on a machine: plain values. What they mean is decided in `findings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakebed.catalog.health import Health


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something could not be seen; why, and what to do if that is known."""

    reason: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class SettingsSeen:
    """How the settings were read."""

    file: str | None
    problems: tuple[str, ...] = ()
    unknown_variables: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class JavaSeen:
    """A Java that Spark can use, and the pyspark that uses it."""

    version: str
    home: str
    pyspark: str


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """A Spark job whose Python ran in workers."""

    spark: str
    worker_python: str
    driver_python: str


class PortState(StrEnum):
    """Whether a server could listen."""

    ANY = "any"
    """Port 0: the system chooses one."""
    FREE = "free"
    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PortSeen:
    """One port of a server."""

    what: str
    setting: str
    address: str
    state: PortState
    reason: str = ""
    """Why it is refused."""
    answer: str = ""
    """Who answers on a port that is taken, as far as it can be told."""
    is_lakebed: bool = False


@dataclass(frozen=True, slots=True)
class CertificateSeen:
    """A certificate and its key, with which a TLS connection was made."""

    certificate: str
    not_after_us: int


@dataclass(frozen=True, slots=True)
class DiskSeen:
    """The file system of a folder."""

    what: str
    path: str
    device: int
    free_bytes: int
    total_bytes: int
    has_free_files: bool = True


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """A store that belongs to the lake and refused to overwrite."""

    url: str


@dataclass(frozen=True, slots=True)
class CatalogSeen:
    """A catalog that answers, and what it says of its lake."""

    health: Health
    place: str
    trouble: Trouble | None = None
    """Why its lake cannot be opened and written."""
    has_keys: bool | None = None
    """None if there is no lake that could say."""
