"""Asynchronous copies and their barriers as pure functions over bits and arrays; no machine, no schedule."""
