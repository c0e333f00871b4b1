"""Wire format: numbers, headers, INFO and CONNECT."""
