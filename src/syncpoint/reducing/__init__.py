"""A run or a dump, also one that is still being written -> far fewer bytes, and nothing lost."""
