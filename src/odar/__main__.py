"""`python -m odar` is the `odar` command."""

from odar.cli.main import main

if __name__ == "__main__":
    main()
