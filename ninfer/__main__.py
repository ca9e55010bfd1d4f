"""`python -m ninfer`: the same command line as the `ninfer` script."""

import sys

from ninfer.cli import main

if __name__ == "__main__":
    sys.exit(main())
