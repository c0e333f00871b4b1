"""How bytes reach the device: small files that survive a crash, system calls, the worker thread."""
