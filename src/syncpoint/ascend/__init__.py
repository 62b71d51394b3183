"""Ascend devices: their dumps, how dumps are paired, the comparison modes and their flags."""
