"""Lets `python -m ticktrue` run the command line."""

from ticktrue.cli.main import main

if __name__ == "__main__":
    main()
