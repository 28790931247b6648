"""Run folders and logs as typed values: the only reader and writer of them; no metric is computed here."""
