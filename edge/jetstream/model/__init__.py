"""Words of the JetStream API: objects, errors, names, times, bounds, requests, hosts."""
