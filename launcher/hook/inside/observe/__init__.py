# What is noticed: calls, batches, steps, figures, settings. Nothing here changes what the job computes.
