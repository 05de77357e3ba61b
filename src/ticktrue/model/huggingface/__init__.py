"""A Hugging Face directory: config.json to ModelSpec, and the names its safetensors use."""

from ticktrue.model.huggingface.config import read_config, read_spec
from ticktrue.model.huggingface.naming import HuggingFaceNaming

__all__ = ["HuggingFaceNaming", "read_config", "read_spec"]
