"""Live models -> runs: one folder per runtime, all behind one small protocol."""
