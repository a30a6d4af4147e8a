package testkit

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestFoldersOfDeadTestBinariesAreDeleted(t *testing.T) {
	t.Parallel()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		owner string
		kept  bool
	}{
		"dead":    {strconv.Itoa(dead.Process.Pid), false},
		"alive":   {strconv.Itoa(os.Getpid()), true},
		"unknown": {"x", true},
	} {
		folder := filepath.Join(Scratch(), folderPrefix()+test.owner+"-swept")
		if err := os.MkdirAll(filepath.Join(folder, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(folder)
		if err := sweep(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) == test.kept {
			t.Errorf("folder of a process that is %s: %v, expected it kept: %v", name, err, test.kept)
		}
	}
}
