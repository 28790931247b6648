"""The static site of runs: files that open from a disk and from any web server; every number is `metrics`'."""

from ptxbench.report.site.build import build_site

__all__ = ["build_site"]
