"""Other libraries' formats: safetensors files, torch state dicts."""
