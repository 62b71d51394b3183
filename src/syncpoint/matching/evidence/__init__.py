"""Evidence for or against a pair: source lines, module names, wrappers, lowered ops."""
