"""The atlas: real architectures in tiny form, each converted in many ways and compared."""
