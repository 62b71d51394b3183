"""The recorder that all captures talk to."""


class Recorder:
    """Takes ops and tensors from a capture and writes them into a run."""
