"""What the records say is wrong, and of what: findings, configurations and their causes."""
