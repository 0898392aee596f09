"""`lakebed doctor`: what is wrong with this machine, and what to do about it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, JsonOption, LakeOption

UNWELL = 1
_SIGNS = {"ok": "✓", "bad": "✗", "skipped": "–"}
_PLAIN_SIGNS = {"ok": "ok", "bad": "BAD", "skipped": "--"}


def doctor(
    lake: LakeOption = HERE,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also run a small job on Spark, in some seconds.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check settings, extras, Java, Spark, catalog, clock, store, disks, ports, TLS and keys, and
    say what to do about what is wrong.

    It looks at what this process would use, by the same settings. The store is tried with a small
    object that is removed again; nothing else is written. Exit code 1 if anything is wrong, 0 if
    not; what could not apply is skipped. A missing extra is not a problem by itself: the last line
    says what this installation cannot do.

    Example: lakebed doctor --lake shop

    Example: lakebed doctor --spark --json
    """
    from lakebed.doctor.checks import Status, examine, list_missing_abilities

    findings = []
    signs = _signs()
    for finding in examine(lake or None, spark=spark):
        findings.append(finding)
        if not as_json:
            output.tell(f"{signs[finding.status.value]} {finding.check}: {finding.found}")
            if finding.advice is not None:
                output.tell(f"    {finding.advice}")
    bad = sum(finding.status is Status.BAD for finding in findings)
    missing = list_missing_abilities(findings)
    if as_json:
        checks = [asdict(finding) for finding in findings]
        output.show_json({"well": not bad, "cannot": missing, "checks": checks})
    else:
        output.say(_summarize(bad, missing))
    if bad:
        raise typer.Exit(UNWELL)


def _summarize(problems: int, missing: list[str]) -> str:
    if missing:
        count = f"{output.plural(problems, 'problem')}, and" if problems else "no problems, but"
        return f"{count} this installation cannot {' or '.join(missing)}: see the extras above"
    return output.plural(problems, "problem") if problems else "all is well"


def _signs() -> dict[str, str]:
    """Ticks and crosses, or words where the terminal's encoding has none."""
    try:
        "".join(_SIGNS.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_SIGNS
    return _SIGNS
