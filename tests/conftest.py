"""What holds for every test: properties are tried on the same examples each time, however slow the machine is."""

from hypothesis import settings

# A machine that does ten other things must not fail a test, and a failure must be there when it is looked for.
settings.register_profile("ptxbench", deadline=None, derandomize=True)
settings.load_profile("ptxbench")
