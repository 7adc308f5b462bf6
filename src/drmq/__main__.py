"""`python -m drmq` is `drmq`."""

import sys

from drmq.server.cli import main

if __name__ == "__main__":
    sys.exit(main())
