"""``python -m autoshard`` is the command ``autoshard``."""

import sys

INTERRUPTED = 130
"""The exit code that shells report for a program stopped by Ctrl-C."""


def run() -> int:
    """Run the command line; Ctrl-C while it is being imported ends it as quietly as later."""
    try:
        from autoshard.cli import main
    except KeyboardInterrupt:
        return INTERRUPTED
    return main()


if __name__ == "__main__":
    sys.exit(run())
