"""The comparison modes of Ascend users: `offline_data` and `torchair`."""
