"""Recorded results of real studies, and what must hold of every report that is drawn from them."""
