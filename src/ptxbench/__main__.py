"""`python -m ptxbench` is the command `ptxbench`."""

from ptxbench.cli import main

if __name__ == "__main__":
    main()
