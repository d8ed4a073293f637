"""`python -m dkvb`: the same as the `dkvb` command."""

from dkvb.cli import main

if __name__ == "__main__":
    main()
