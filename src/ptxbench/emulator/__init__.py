"""Runs PTX on the CPU: a functional device that counts, and finds hangs and races; it measures no time."""
