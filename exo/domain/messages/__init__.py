"""Everything that travels, by kind: commands and reports in, events out, tasks to runners, chunks to clients."""
