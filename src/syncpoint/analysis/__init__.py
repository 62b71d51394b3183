"""Compiled against eager: the runs that `syncpoint analyze` makes, and what they say together."""
