"""Ready analytics jobs, each a function and a command."""
