"""Two runs -> sync points. A chain of matchers, strongest evidence first."""
