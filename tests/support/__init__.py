"""What several kinds of tests share: broker processes, client drivers, hand-made frames, and waiting."""
