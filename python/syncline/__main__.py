"""The command-line program: ``python -m syncline``."""

import signal
import sys

from . import _native


def main() -> int:
    """Runs the program with the arguments of this process and returns its exit status."""
    # The program does what a program does: Ctrl-C ends it at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    status = _native.main(["syncline", *sys.argv[1:]], [sys.executable, "-m", "syncline"])
    sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
