package proof

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRecordReplacesOnlyTheSectionOfItsCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "PROOFS.md")
	const first, last = "# Proofs\n\nText.\n\n## faults\n\nOld faults.\n\n### Part\n\n", "## faults failover\n\nFailover.\n\n## soak\n\nSoak.\n"
	if err := os.WriteFile(path, []byte(first+last), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Section{Name: "faults", Claim: "No edge serves a stale response.", Kept: true, Figures: "| a |\n|---|\n## part\n", Began: time.Unix(1700000000, 0),
		Took: time.Minute, Commit: "abc", Command: "go run ./bench/prove faults"}
	for range 2 { // a second run of the same command changes nothing else either
		if err := Record(path, s); err != nil {
			t.Fatal(err)
		}
	}
	s.Name, s.Kept = "speed", false
	if err := Record(path, s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	if !strings.HasPrefix(got, "# Proofs\n\nText.\n\n## faults\n\nNo edge serves a stale response.\n\n- Result: kept\n- Commit: abc\n") ||
		!strings.Contains(got, "\n\n"+last+"\n## speed\n\n") || strings.Contains(got, "Old") || strings.Count(got, "\n## ") != 4 ||
		!strings.Contains(got, "\n#### part\n") || strings.Count(got, "**not kept**") != 1 || !strings.Contains(got, "2023-11-14 22:13 UTC, for 1m0s") {
		t.Error(got)
	}
}

func TestRecordOutsideTheRepositorySaysWhatToDo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "PROOFS.md")
	if err := Record(path, Section{Name: "speed"}); !errors.Is(err, errNoFile) {
		t.Errorf("error %v, expected %v", err, errNoFile)
	}
}
