"""An emulated device in its own process, so that hostile PTX costs the caller neither memory, time nor its life."""
