"""The native devices, one file each; loaded by name by the registry in `optirs_web.runtime`."""
