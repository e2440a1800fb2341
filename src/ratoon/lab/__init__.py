"""Experiments over HTTP: what prefix caching gains, measured from outside.

Everything here is seen as a client sees it: requests go out, tokens come back, counters are read before and
after. Nothing is known of the engine's insides; what a cache should have hit is worked out afresh from token
ids (`prefix_model.py`). An experiment (`experiments/`) measures and appends raw samples to a run folder
(`run_store.py`); its analysis reads them back and makes a report (`report/`), so a report can always be made
again from the samples.
"""
