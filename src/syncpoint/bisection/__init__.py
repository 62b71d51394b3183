"""Find the first bad op of a target that shows nothing but its outputs, by truncating it."""
