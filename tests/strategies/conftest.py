"""Makes the small programs that the planner's tests share importable (`plan_cases`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "planning"))
