"""Tables: headings, and the cells that go under them."""
