"""The demo: a FastAPI application with its pages, and the Python programs that run in them."""
