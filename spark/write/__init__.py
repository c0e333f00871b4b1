"""Writes: rows become messages, each once."""
