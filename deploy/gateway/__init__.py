"""`headwater edge`: what runs on a gateway beside the node itself."""
