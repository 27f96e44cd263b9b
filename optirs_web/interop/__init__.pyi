from . import jax as jax, onnx as onnx, safetensors as safetensors, torch as torch
