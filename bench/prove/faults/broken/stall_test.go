package broken

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/testkit"
)

// A request reads the lease and the stamps within a few instructions, too fast for a run to hit the gap. These tests run in a build in
// which requests stall there: once with the original sources, and once with the two reads swapped, which the tests must detect.
func TestRequestThatStallsBetweenItsReadsGetsTheNewTarget(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	text, err := os.ReadFile("testdata/stall.patch")
	if err != nil {
		t.Fatal(err)
	}
	stall, err := parse("stall", string(text))
	if err != nil {
		t.Fatal(err)
	}
	passed, failed := testStalled(t, stall)
	all := []string{"cache", "front_index", "joined_load", "stale_if_error"}
	if len(failed) > 0 || !slices.Equal(passed, all) {
		t.Errorf("original sources: passed %q, failed %q, expected all of %q to pass", passed, failed, all)
	}
	rules, err := Rules()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == "stamps-before-lease" })
	if at < 0 {
		t.Fatal("no patch reads the stamps before the lease")
	}
	stall.hunks = slices.Concat(stall.hunks, rules[at].hunks)
	if passed, failed := testStalled(t, stall); !slices.Equal(failed, all) {
		t.Errorf("stamps before lease: %s", cmp.Diff(all, failed)+cmp.Diff([]string(nil), passed))
	}
}

// testStalled runs the tests of the stall build and returns those that passed and those that failed.
func testStalled(t *testing.T, build Rule) (passed, failed []string) {
	t.Helper()
	overlay, err := build.Overlay(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-tags=stall", "-overlay", overlay,
		"-run=^TestStalledRequest$", "-v", "deeplink/edge/internal/replica").CombinedOutput()
	for _, line := range regexp.MustCompile(`(?m)^ +--- (PASS|FAIL): TestStalledRequest/(\S+)`).FindAllSubmatch(out, -1) {
		if string(line[1]) == "PASS" {
			passed = append(passed, string(line[2]))
		} else {
			failed = append(failed, string(line[2]))
		}
	}
	t.Logf("%v\n%s", err, out)
	return passed, failed
}
