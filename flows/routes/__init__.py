"""Routes: what the mill does with a family, one module each. The catalogue names a route by its module's name."""
