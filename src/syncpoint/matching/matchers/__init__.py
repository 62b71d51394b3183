"""The matchers of the chain, one file each."""
