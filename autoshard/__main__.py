"""``python -m autoshard`` is the command ``autoshard``."""

import sys

from autoshard.cli import main

sys.exit(main())
