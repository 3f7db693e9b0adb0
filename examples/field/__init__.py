"""Public repositories that train without backpropagation: cloned, trained by their own code, audited."""
