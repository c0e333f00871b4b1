"""A node put together: start, reload, lame duck, stop."""
