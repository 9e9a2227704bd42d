"""Memory by tag: regions, pause and resume, and tags shared with other processes."""
