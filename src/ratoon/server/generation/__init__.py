"""From a checked request to its response, whatever dialect it came in. Begin with request.py."""
