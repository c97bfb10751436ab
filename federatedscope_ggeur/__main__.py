"""Entry point of ``python -m federatedscope_ggeur``."""

import sys

from federatedscope_ggeur.cli import main

if __name__ == "__main__":
    sys.exit(main())
