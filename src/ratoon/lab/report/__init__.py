"""Reports: what a run's samples say, as findings, tables and plots; and the page, the files and the terminal."""
