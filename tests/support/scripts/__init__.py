"""Scripts that know nothing of raybench: what torchrun runs."""
