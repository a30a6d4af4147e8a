package testkit

import "testing"

// Prove marks a test of the second tier, which `make prove` runs: it drives whole fleets, browsers, or faults that take long to cause.
// Under -short, as in `make test`, it skips the test. Call it in the first line of the test: .ci/proofs searches for these calls.
func Prove(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make prove runs this test")
	}
}
