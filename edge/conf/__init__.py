"""Node configuration: the NATS configuration grammar, command line flags and their options."""
