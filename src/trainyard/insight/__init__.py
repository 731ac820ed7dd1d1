"""What is concluded from what a training left: pure, so that the same code judges a live run and an old one."""
