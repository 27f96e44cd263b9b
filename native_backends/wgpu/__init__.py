"""Vulkan, Metal, DX12 and OpenGL through wgpu-native or Dawn."""
