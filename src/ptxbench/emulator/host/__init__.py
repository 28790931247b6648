"""A candidate's host code with no GPU: stub runtime and driver, the sandboxed process, and the record of its calls."""
