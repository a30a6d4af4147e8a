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

// The few instructions between a request's two reads are too short for a run to come between them. So the tests run in a build in
// which requests stall there: on the sources as they are, and with the two reads the wrong way round, which those tests must notice.
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
	all := []string{"cache", "hot", "joined_load", "stale_if_error"}
	if len(failed) > 0 || !slices.Equal(passed, all) {
		t.Errorf("as it is: passed %q, failed %q, expected all of %q to pass", passed, failed, all)
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
