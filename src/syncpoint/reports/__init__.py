"""Reports of comparisons, diagnoses, analyses and bisections: terminal, CSV, JSON, notebook."""
