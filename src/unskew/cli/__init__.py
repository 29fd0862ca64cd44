"""The command line: parse, call, print."""

from unskew.cli.main import main

__all__ = ["main"]
