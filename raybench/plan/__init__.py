"""From a study to requests: which trials, in which order, what is suggested next, what time allows."""
