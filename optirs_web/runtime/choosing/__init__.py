"""Natively: what "auto" takes, and what else is known of devices.

`ranking` orders the candidates, `probes` times them, `figures` keeps the times; `health` notes devices that fail;
`topology` completes the list of devices, and `packages` says what to install. A page has one adapter and none of this.
"""
