"""Reports: what a run's samples say, as findings, tables and plots; and how they are shown."""
