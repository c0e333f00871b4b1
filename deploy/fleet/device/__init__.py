"""What runs on a gateway outside the slots: installs, switches, watches and takes back.

These modules import the standard library only, and each other: they are packed as one file, and
have to work while no slot does.
"""
