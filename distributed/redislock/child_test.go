package redislock

// childVariable makes the test binary play one part of a test as a process of its own.
const childVariable = "WLLOCK_TEST_CHILD"

func runChild(string) {}
