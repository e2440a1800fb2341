"""The experiments: each decides what to ask in which order, and appends raw samples to the run's folder."""
