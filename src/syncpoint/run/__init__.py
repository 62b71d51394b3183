"""A run, the record of one execution: data model, on-disk format, recorder."""
