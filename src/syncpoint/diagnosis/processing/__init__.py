"""What is done before and after the model, or inside it on one side alone."""
