"""Command line: `main` runs one command and returns its exit status."""

from ninfer.cli.main import main

__all__ = ["main"]
