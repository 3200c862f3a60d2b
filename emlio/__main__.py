"""`python -m emlio`: the command `emlio` where its script is not on the PATH.

Covers: the program's name in help texts. Does not cover: the command itself (emlio.cli).
"""

import sys

from emlio.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.argv[0] = "emlio"
    sys.exit(main())
