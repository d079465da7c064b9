// Package test has the tests that start gpurun as users do, and need what not every machine
// has: PyTorch, GPUs, Slurm, Kubernetes, packages, a terminal. Where that is missing they skip.
package test
