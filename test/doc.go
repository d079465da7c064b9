// Package test has the tests that start gpurun as users do. They need things that not every machine has:
// PyTorch, GPUs, Slurm, Kubernetes, packages, a terminal. They are skipped if these are missing.
package test
