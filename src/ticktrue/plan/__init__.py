"""What it would deliver: which systems hold a model, what of it is covered, its time on GPUs (checked in `gpu_points`)."""
