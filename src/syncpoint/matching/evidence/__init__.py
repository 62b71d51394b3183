"""What speaks for or against a pair: names, source lines, wrappers, folds."""
