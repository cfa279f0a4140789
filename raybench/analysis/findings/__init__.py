"""What the records say is wrong, and of what: findings and their causes."""
