"""ptxbench: one kernel file in, a verdict in three layers out."""
