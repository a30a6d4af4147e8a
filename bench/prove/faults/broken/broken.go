// Package broken breaks the rules of the freshness protocol, one at a time, so that the fault bench can show that it would have
// noticed. Nothing of it stands in the shipped sources: each break is a patch of them, kept here and applied while compiling.
//
// A patch begins with the rule, in one sentence. A further paragraph says what was added so that a short run can see the break, if
// anything. Then come hunks as diff prints them, without line numbers: what a hunk replaces must stand in its file exactly once,
// so that a patch never breaks something else than it says.
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

// Rule is one rule of the protocol, with what breaks it.
type Rule struct {
	// Name is that of the patch: what is done in place of what the rule says.
	Name string
	// Text is the rule, in one sentence.
	Text  string
	hunks []hunk
}

// hunk is one place of one file that is replaced.
type hunk struct {
	file     string // from the root of the module on, with slashes
	from, to string // whole lines
}

// Rules returns all there are, by name.
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
			return bad("is not in the form of diff: " + file)
		}
		for _, lines := range strings.Split(strings.TrimSuffix(rest, "\n"), "\n@@\n") {
			h := hunk{file: file}
			for line := range strings.SplitSeq(lines, "\n") {
				if line == "" {
					line = " " // as editors leave an empty line of context
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

// errNotOnce: a patch no longer fits the sources.
var errNotOnce = errors.New("what is to be replaced does not stand there exactly once")

// Overlay patches copies of the sources of the module that the working directory belongs to, in dir, and returns the file that
// makes the go command read them in place of the originals, with -overlay. dir must last as long as that is used.
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
