"""Makes the helper modules of this folder importable (`plan_cases`, `every_plan`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
