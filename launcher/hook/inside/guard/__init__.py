# What repeats a pass that ran out of memory, proves that it may, and gives up.
