"""Run the command as ``python -m intercom``."""

from intercom.cli.main import run

if __name__ == "__main__":
    run()
