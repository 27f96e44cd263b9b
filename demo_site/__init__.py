"""The demo site: a FastAPI application, its pages, and the Python programs that run in the pages."""
