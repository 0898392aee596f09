"""The `lakebed` command. Errors are one line that says what to do; the exit code says which kind:

0 done · 1 damaged or failed · 2 wrong call · 3 not found · 4 conflict or refused · 5 done in part ·
69 unavailable · 130 interrupted · 143 ended by SIGTERM
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import traceback
from contextlib import suppress
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lakebed import __version__
from lakebed.cli.data import blocks, build, land, query, views
from lakebed.cli.lake import config, demo, doctor, init, keys, serve
from lakebed.cli.operate import check, journal, partitions, sweep, upkeep
from lakebed.cli.tables import app as tables
from lakebed.errors import LakebedError
from lakebed.extras import explain_missing_module

INTERRUPTED = 130
TERMINATED = 143
FAILED = 1
USAGE = 2
_ENGINE = "lakebed.query.embedded.running.streams"


class _Root(TyperGroup):
    """A group whose flags are off by default. With a default of None typer loads pydantic, which
    takes longer than the help of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before a command's name."""
        for parameter in self.get_params(ctx):
            if getattr(parameter, "is_flag", False) and parameter.default is None:
                parameter.default = False
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Lakebed: Parquet partitions whose truth is a transactional SQL catalog.",
    epilog="Exit codes: 0 done, 1 damaged or failed, 2 wrong call, 3 not found, 4 conflict or "
    "refused, 5 done in part, 69 unavailable, 130 interrupted, 143 ended by SIGTERM.",
)
app.command()(init.init)
app.command()(land.land)
app.command()(build.build)
app.add_typer(blocks.app, name="blocks")
app.command()(query.query)
app.add_typer(tables.app, name="tables")
app.add_typer(views.app, name="views")
app.add_typer(partitions.app, name="partitions")
app.command()(upkeep.upkeep)
app.add_typer(keys.app, name="keys")
app.command()(serve.serve)
app.command()(config.config)
app.command()(doctor.doctor)
app.command()(sweep.sweep)
app.command()(check.check)
app.command("journal")(journal.show_journal)
app.command("leases")(journal.show_leases)
app.add_typer(init.backup_app, name="backup")
app.command()(init.migrate)
app.command()(demo.demo)
app.command()(demo.tour)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"lakebed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    del version, debug  # the first acts by itself; `main` looks for the second


class _ExitWithoutTeardown:
    """The last exit handler: ends the process if a code is set, before the interpreter is taken
    apart. Handlers run in the reverse order of their registration.

    After a statement of the embedded engine, threads of the engine that are on their way back into
    the interpreter would abort the process. After an interrupt that went through an `exec`, as when
    modules are loaded, `python -m` would end by SIGINT instead of with the code."""

    code: int | None = None

    def __call__(self) -> None:
        if self.code is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the reader is gone
                stream.flush()
        os._exit(self.code)


def main() -> None:
    """Run the command line and exit with a documented code. SIGTERM ends a command as Ctrl-C does,
    in order: else its leases would make others wait until it counts as dead."""
    last_handler = _ExitWithoutTeardown()
    atexit.register(last_handler)
    is_terminated = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_terminated
        is_terminated = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # the parent does not ignore it
        signal.signal(signal.SIGTERM, end)
    code = run(sys.argv[1:], alone=True)
    if is_terminated and code == INTERRUPTED:
        code = TERMINATED
    if _ENGINE in sys.modules or code in (INTERRUPTED, TERMINATED):
        last_handler.code = code
    sys.exit(code)


def run(arguments: list[str], *, alone: bool = False) -> int:
    """Run one command line; its exit code. ``alone`` if the process ends with it and runs nobody
    else's code."""
    debug = "--debug" in arguments
    try:
        code = app(arguments, prog_name="lakebed", standalone_mode=False, obj=alone) or 0
        if code == INTERRUPTED:
            typer.echo("interrupted", err=True)
        sys.stdout.flush()  # so that a reader who went away is noticed here
        return code  # noqa: TRY300
    except typer.TyperException as error:
        return _explain_usage(error)
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as ended:  # typer's answer to a broken pipe, and rich's
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return 0
    except LakebedError as error:
        return _explain(error, debug=debug)
    except Exception as error:  # noqa: BLE001  (the last line of defence: no traceback for users)
        if isinstance(error, ModuleNotFoundError) and (missing := explain_missing_module(error)):
            return _explain(missing, debug=debug)
        if debug:
            traceback.print_exc()
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        typer.echo(
            f"error: unexpected {type(error).__name__}: {first}; repeat with "
            "`lakebed --debug …` and report what it prints",
            err=True,
        )
        return FAILED


def _explain(error: LakebedError, *, debug: bool) -> int:
    """Print an error in one line, then its notes; return its exit code."""
    if debug:
        traceback.print_exc()
    text = f"error: {error}" + (f"; {error.hint}" if error.hint else "")
    typer.echo(" ".join(text.split()), err=True)
    for note in getattr(error, "__notes__", ()):
        if note != error.hint_note:  # that is in the line already
            typer.echo(note, err=True)
    return error.exit_code


def _explain_usage(error: typer.TyperException) -> int:
    """One line for a wrong option or argument; the help itself where nothing was asked for."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        typer.echo(context.get_help(), err=True)
        return USAGE
    describe = getattr(error, "format_message", error.__str__)
    message = " ".join(describe().replace("Value error, ", "").split()).rstrip(".")
    where = context.command_path if context is not None else "lakebed"
    typer.echo(f"error: {message}; see: {where} --help", err=True)
    return USAGE
