"""The helpers of this layer are found by their plain names, here and in the workers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
