package testkit

import "testing"

// Prove marks a test of the second tier, which `make prove` runs: it drives whole fleets, browsers, or faults that take long to make.
// Under -short, as `make test` runs, it skips the test. Call it in the first line of the test: .ci/proofs finds these calls.
func Prove(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make prove runs this test")
	}
}
