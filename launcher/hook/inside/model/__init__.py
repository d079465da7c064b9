# The model: its root, its blocks, and the state that its forward changes.
