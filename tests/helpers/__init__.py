"""What several tests share: oracles, generators of inputs, servers and processes to test."""
