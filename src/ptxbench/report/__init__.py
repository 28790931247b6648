"""Runs as tables and as the formats of other tools; every number comes from `metrics`, every turn from `records`."""
