# What needs less memory: recomputation, parts of the batch or of the loss, the host's memory.
