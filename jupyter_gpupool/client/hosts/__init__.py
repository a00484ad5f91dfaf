"""What runs inside the user's own interpreter: each file by itself, with the standard library only."""
