"""From a kernel's instructions to Python functions over lanes; runs nothing and keeps no state of a launch."""
