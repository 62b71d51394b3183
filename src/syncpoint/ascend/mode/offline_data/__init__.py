"""The mode `offline_data`: compare dumps of Ascend devices."""
