"""A progress bar in one line of standard error, in terminals and notebooks alike."""

import sys
import time

WIDTH = 30


class Bar:
    """Shows how far a call has come; called with the bytes done and the bytes in all."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.shown = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        is_over = done >= total
        if now - self.shown < 0.1 and not is_over:
            return
        self.shown = now
        share = done / total if total else 1.0
        bar = "#" * round(WIDTH * share)
        rate = done / 1e9 / max(now - self.began, 1e-9)
        line = f"\r[{bar:<{WIDTH}}] {share:4.0%} {done / 1e9:.2f} of {total / 1e9:.2f} GB, "
        sys.stderr.write(f"{line}{rate:.2f} GB/s" + ("\n" if is_over else ""))
        sys.stderr.flush()
