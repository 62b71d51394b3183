"""Dumps of Ascend devices, the golden arrays they are held against, and the files beside them."""
