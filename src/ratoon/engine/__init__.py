"""The engine: configuration, the loop, and the faces callers see. `build.py` wires all rooms together."""
