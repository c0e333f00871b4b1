"""The system account: requests to nodes, events about them, tokens of accounts."""
