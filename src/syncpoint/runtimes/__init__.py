"""Live models -> runs. One file per runtime behind one small protocol."""
