"""Entry point of `python -m syncpoint`: runs the command line."""

from syncpoint.cli import main

if __name__ == "__main__":
    main()
