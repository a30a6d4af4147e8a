// Package proof updates bench/PROOFS.md: one section for each command of prove, which the command itself writes.
package proof

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deeplink/bench/result"
)

// Output is where a command writes.
type Output struct {
	// Writer receives the tables. They are printed and become the figures of the command's section.
	io.Writer
	// Log receives the logs of the programs under test.
	Log io.Writer
}

// Section is the result of one run of a command.
type Section struct {
	// Name is the command without its flags, such as "faults failover".
	Name string
	// Claim is what the run checks, as one sentence.
	Claim string
	// Kept is false if a measurement contradicts the claim.
	Kept    bool
	Figures string // in Markdown
	Commit  string
	Machine result.Machine
	Began   time.Time
	Took    time.Duration
	Command string // the command line
}

func (s Section) heading() string { return "## " + s.Name + "\n" }

func (s Section) text() string {
	kept := "kept"
	if !s.Kept {
		kept = "**not kept**"
	}
	m := s.Machine
	return fmt.Sprintf("%s\n%s\n\n- Result: %s\n- Commit: %s\n- Machine: %s, %d cores, %s, %s, %s\n- Time: %s, for %s\n- Command: `%s`\n\n%s\n",
		s.heading(), s.Claim, kept, s.Commit, m.CPU, m.Cores, m.Memory, m.Kernel, m.Go, s.Began.UTC().Format("2006-01-02 15:04 UTC"),
		s.Took.Round(time.Second), s.Command, strings.TrimSpace(demote(s.Figures)))
}

// demote lowers the level of headings in the figures that would otherwise end the section.
func demote(figures string) string {
	lines := strings.Split(figures, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "## ") {
			lines[i] = "##" + line
		}
	}
	return strings.Join(lines, "\n")
}

// errNoFile means that the file does not exist: the working directory is not the root of the repository.
var errNoFile = errors.New("run prove in the root of the repository, or set --proofs")

// Record replaces the section of the same name in the file at path, and leaves everything else unchanged. A new section is appended.
func Record(path string, s Section) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", err, errNoFile)
	}
	if err != nil {
		return err
	}
	// Written atomically: an interrupted run must not leave half a file.
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temporary, []byte(replace(string(old), s)), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func replace(file string, s Section) string {
	head, rest, found := strings.Cut("\n"+file, "\n"+s.heading())
	head = strings.TrimPrefix(head, "\n")
	if !found {
		return strings.TrimRight(head, "\n") + "\n\n" + s.text()
	}
	if _, following, more := strings.Cut("\n"+rest, "\n## "); more {
		return strings.TrimRight(head, "\n") + "\n\n" + s.text() + "\n## " + following
	}
	return strings.TrimRight(head, "\n") + "\n\n" + s.text()
}
