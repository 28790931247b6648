"""The command line: parse, call one function of one room, print, exit code; it decides nothing about kernels."""

from ptxbench.cli.main import main

__all__ = ["main"]
