"""``python -m walkserve``: the command line."""

import sys

from walkserve.cli import main

if __name__ == "__main__":
    sys.exit(main())
