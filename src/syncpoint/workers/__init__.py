"""Programs that the server starts as processes of their own."""
