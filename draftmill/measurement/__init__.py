"""What a drafter is worth on a device: two arms of one run, and what may be concluded from them."""
