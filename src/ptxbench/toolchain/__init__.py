"""The CUDA tools behind typed calls, and the build cache; what results mean is not judged here."""
