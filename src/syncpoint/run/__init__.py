"""What one execution left behind: the data model, our on-disk format, the recorder."""
