"""Tensor cores and their operands as pure functions of register and memory bits; knows no machine and no scheduling."""
