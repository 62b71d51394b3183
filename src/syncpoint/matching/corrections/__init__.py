"""Corrections of doubtful pairs: what values and graphs say against a pair that was made."""
