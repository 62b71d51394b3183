"""Dumps of Ascend devices: their files, layouts and rules, and the columns of their report."""
