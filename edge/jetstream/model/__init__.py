"""Words of the JetStream API: objects, bodies, errors, names, times, bounds, requests, hosts."""
