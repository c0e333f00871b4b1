"""Tables of what logins and links may do. `edge/broker/authorize.py` alone reads them."""
