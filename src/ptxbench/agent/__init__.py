"""MiniPTXAgent: a model writes kernels turn by turn and reads a verdict after each; no kernel is judged here."""
