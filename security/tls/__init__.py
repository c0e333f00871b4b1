"""TLS: contexts from plain settings, and the little that OpenSSL can do and `ssl` cannot."""
