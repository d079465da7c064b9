# What joins all parts: as modules are imported, at the root's first call, and at the end of the process.
