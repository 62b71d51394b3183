"""What an op may have computed instead: known variants, one family a file."""
