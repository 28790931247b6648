"""Every number of the benchmark, defined once, over rows of turns; nothing is read from a file or drawn here."""
