"""Files, time, disk, network and chance, as ports; what a directory takes on its device."""
