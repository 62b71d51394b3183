"""The findings of each class of cause: titles, evidence and next steps."""
