"""XLA through JAX: CPUs, TPUs and GPUs."""
