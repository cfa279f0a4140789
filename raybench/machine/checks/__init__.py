"""What ``doctor`` looks at, a module a subject; each function yields what it saw."""
