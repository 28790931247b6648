"""Machine code seen as evidence: opcode families, their work, and how often a profiler saw them run; no tool is run."""
