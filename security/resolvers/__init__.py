"""Where account tokens of operator mode come from."""
