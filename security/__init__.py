"""Identity and trust: NKeys, JWTs, creds files, passwords, permissions and TLS contexts."""
