"""Plans for `-m torchair`: pairs of a GE dump with an FX dump or with an unfused GE dump."""
