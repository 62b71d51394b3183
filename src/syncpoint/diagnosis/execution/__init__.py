"""How the target was executed: its buffers and memory, its random numbers, its own noise."""
