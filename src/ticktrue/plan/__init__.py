"""What would it deliver: which systems hold a model, and what of a model is covered."""
