"""Run the command line with ``python -m unskew``."""

from unskew.cli import main

if __name__ == "__main__":
    main(prog_name="unskew")
