"""What would it deliver: time of a model on GPUs, checked against published figures (`gpu_points`)."""
