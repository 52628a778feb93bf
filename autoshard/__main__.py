"""``python -m autoshard`` is the command ``autoshard``."""

import sys

INTERRUPTED = 130
"""The exit code that shells report for a program stopped by Ctrl-C."""


def run() -> int:
    """Run the command line; Ctrl-C while it is being imported, or while Python ends, ends it as quietly as
    otherwise. A command that was interrupted ends the process at once.
    """
    try:
        from autoshard import interrupts

        interrupts.heed()
        with interrupts.arriving():
            from autoshard.cli import main

            code = main()
        if code == INTERRUPTED:
            interrupts.leave(code)
        interrupts.end()
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(run())
