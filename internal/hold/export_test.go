package hold

// Due is what the timer of the limits calls.
func Due(h *Hold) { h.due() }

// Overstay is what it calls when LockTimeMax has passed.
func Overstay(h *Hold) { h.overstay() }

// Limits is how many holds have a timer.
func Limits(h *Hold) int { return h.group.limits.Len() }
