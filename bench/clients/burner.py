"""Uses all of a core and does nothing with it, until its standard input ends.

Standard input is a pipe from the program that started it, so it cannot outlive that program, however that ends.
"""

import os
import sys
import threading


def watch() -> None:
    """End the process when the pipe is closed."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=watch, daemon=True).start()
    sys.stdout.write("burning\n")
    sys.stdout.flush()
    while True:
        pass
