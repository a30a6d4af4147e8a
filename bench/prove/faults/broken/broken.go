// Package broken breaks the rules of the freshness protocol, one at a time, to show that the fault bench detects each. The shipped sources
// contain none of this: each break is a patch, kept here and applied at compile time.
//
// A patch begins with the rule, in one sentence. A second paragraph, if any, says what was added so that a short run can detect the break.
// Then come hunks in diff format without line numbers. The lines that a hunk replaces must occur exactly once in their file, so that a
// patch never breaks something else.
package broken

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed *.patch
var patches embed.FS

// Rule is one rule of the protocol, and the patch that breaks it.
type Rule struct {
	// Name is the name of the patch: what the broken build does instead of following the rule.
	Name string
	// Text is the rule, in one sentence.
	Text  string
	hunks []hunk
}

// hunk replaces lines at one place of one file.
type hunk struct {
	file     string // from the module root, with slashes
	from, to string // whole lines
}

// Rules returns all rules, by name.
func Rules() ([]Rule, error) {
	files, err := patches.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []Rule
	for _, file := range files {
		text, err := patches.ReadFile(file.Name())
		if err != nil {
			return nil, err
		}
		rule, err := parse(strings.TrimSuffix(file.Name(), ".patch"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, rule)
	}
	return all, nil
}

// parse reads a patch.
func parse(name, text string) (Rule, error) {
	bad := func(why string) (Rule, error) { return Rule{}, fmt.Errorf("%s.patch: %s", name, why) }
	head, body, found := strings.Cut(text, "\n--- a/")
	if !found {
		return bad("changes no file")
	}
	sentence, _, _ := strings.Cut(head, "\n\n")
	rule := Rule{Name: name, Text: strings.Join(strings.Fields(sentence), " ")}
	if !strings.HasSuffix(rule.Text, ".") {
		return bad("does not begin with a sentence")
	}
	for _, section := range strings.Split(body, "\n--- a/") {
		file, rest, _ := strings.Cut(section, "\n")
		rest, found := strings.CutPrefix(rest, "+++ b/"+file+"\n@@\n")
		if !found {
			return bad("is not in diff format: " + file)
		}
		for _, lines := range strings.Split(strings.TrimSuffix(rest, "\n"), "\n@@\n") {
			h := hunk{file: file}
			for line := range strings.SplitSeq(lines, "\n") {
				if line == "" {
					line = " " // editors strip the space from an empty context line
				}
				if line[0] != '+' {
					h.from += line[1:] + "\n"
				}
				if line[0] != '-' {
					h.to += line[1:] + "\n"
				}
				if !strings.ContainsRune(" +-", rune(line[0])) {
					return bad("has a line that is neither context nor changed: " + line)
				}
			}
			rule.hunks = append(rule.hunks, h)
		}
	}
	return rule, nil
}

// errNotOnce means that a patch no longer fits the sources.
var errNotOnce = errors.New("the lines to replace do not occur exactly once")

// Overlay writes patched copies of sources of the module of the working directory into dir. It returns the file for -overlay, with which
// the go command reads the copies instead of the originals. dir must exist as long as that file is used.
func (r Rule) Overlay(ctx context.Context, dir string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	patched := make(map[string]string)
	for _, h := range r.hunks {
		original := filepath.Join(root, filepath.FromSlash(h.file))
		from, seen := patched[original]
		if !seen {
			from = original
			patched[original] = filepath.Join(dir, fmt.Sprintf("%d_%s", len(patched), filepath.Base(original)))
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return "", fmt.Errorf("%s.patch: %w", r.Name, err)
		}
		changed, err := h.apply(string(text))
		if err != nil {
			return "", fmt.Errorf("%s.patch: %s: %w:\n%s", r.Name, h.file, err, h.from)
		}
		if err := os.WriteFile(patched[original], []byte(changed), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": patched})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// apply replaces whole lines.
func (h hunk) apply(text string) (string, error) {
	text, from := "\n"+text, "\n"+h.from
	at := strings.Index(text, from)
	if at < 0 || strings.Contains(text[at+1:], from) {
		return "", errNotOnce
	}
	return text[1:at+1] + h.to + text[at+len(from):], nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
