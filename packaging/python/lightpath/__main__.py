"""The lightpath command: python3 -m lightpath, or lightpath where the package is installed."""

import os
import sys

from lightpath import command_path


def main() -> None:
    """Replaces this process by the command."""
    path = command_path()
    os.execvp(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
