"""Runs one task of EvalScope, in whichever environment has it: needs nothing else of this package.

The first line of standard input is the server's key, for no other program to see; the rest is the
task as JSON.
"""

import json
import sys

from evalscope import TaskConfig, run_task


def main() -> None:
    """Read a task and run it."""
    key, _, text = sys.stdin.read().partition("\n")
    run_task(TaskConfig(**json.loads(text), api_key=key or "none"))


if __name__ == "__main__":
    main()
