"""What `--help_tls` prints."""

TLS_HELP = """\
TLS in a configuration file. The same block stands in `leafnodes`, `cluster` and `websocket`:

    tls {
      cert_file: "server.pem"        # the certificate, and those between it and its authority
      key_file: "server-key.pem"     # its private key
      ca_file: "authority.pem"       # who vouches for the certificates of peers

      verify: true                   # demand a certificate of each client
      verify_and_map: true           # demand one, and take the user's name from it
      pinned_certs: ["<sha-256>"]    # keys of peers that are taken, and no others
      timeout: 2                     # seconds that a handshake may take
      handshake_first: true          # TLS before anything else is said
      connection_rate_limit: 100     # handshakes in a second
      cipher_suites: ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
      curve_preferences: ["X25519", "CurveP256"]
    }

`allow_non_tls: true`, beside the block, also serves clients without TLS.
On the command line: --tls or --tlsverify with --tlscert, --tlskey and --tlscacert.
"""
