"""Dumps of Ascend devices -> sync points, by the rule files of their compiler or by name."""
