package race

// Skip leaves a test that the race detector makes too slow, or wrong, to the run of `make test` without it, and says why. The Makefile finds
// these tests by this call.
func Skip(t interface {
	Helper()
	Skip(why ...any)
}, why string,
) {
	t.Helper()
	if Enabled {
		t.Skip(why + "; make test runs this without the detector")
	}
}
