"""Plans for `-m offline_data`: pairs by the compiler's rule files, or by name."""
