"""Print the command or snippet that a README marks with ``<!-- command: NAME -->``."""

import re
import sys
from pathlib import Path

name, readme = sys.argv[1:]
found = re.findall(
    rf"<!-- command: {re.escape(name)} -->\s*```(?:bash|sh|python)?\n(.+?)\n```",
    Path(readme).read_text(encoding="utf-8"),
    re.DOTALL,
)
if len(found) != 1:
    sys.exit(f"{readme} must mark one command '{name}', found {len(found)}")
print(found[0])
