"""Scripts and environment variables that choose a backend of Diffusers or Transformers."""
