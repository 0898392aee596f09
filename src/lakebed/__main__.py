"""The `lakebed` command, also as `python -m lakebed`."""

import signal


def main() -> None:
    """Load the command line and run it. An interrupt while it loads just ends the process."""
    interrupt = signal.getsignal(signal.SIGINT)  # ignored, if a shell put this in the background
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lakebed.cli.main import main as run

    signal.signal(signal.SIGINT, interrupt)
    run()


if __name__ == "__main__":
    main()
