"""Arithmetic, logic, comparison, conversion and warp exchange as pure functions of register bits; knows no machine."""
