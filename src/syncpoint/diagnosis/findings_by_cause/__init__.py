"""The classes of cause, one file each."""
