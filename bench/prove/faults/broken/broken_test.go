package broken

import (
	"errors"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"deeplink/shared/testkit"
)

// A patch that no longer fits would let the bench pass without a proof.
func TestEveryPatchFitsTheSourcesAndCompiles(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	rules, err := Rules()
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) < 9 {
		t.Fatalf("%d rules", len(rules))
	}
	for _, rule := range rules {
		t.Run(rule.Name, func(t *testing.T) {
			overlay, err := rule.Overlay(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			// With -export the patched packages are compiled, but not linked.
			arguments := append([]string{"list", "-overlay", overlay, "-export", "-f", "{{.Export}}"}, rule.packages()...)
			out, err := exec.CommandContext(t.Context(), "go", arguments...).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// packages are the patched packages, without their importers.
func (r Rule) packages() (all []string) {
	for _, h := range r.hunks {
		if name := path.Join("deeplink", path.Dir(h.file)); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func TestPatchesAreRead(t *testing.T) {
	t.Parallel()
	rule, err := parse("name", "A rule,\nin words.\n\nMore.\n\n--- a/x/one.go\n+++ b/x/one.go\n@@\n a\n-b\n+c\n\n d\n@@\n+e\n f\n--- a/two.go\n+++ b/two.go\n@@\n-g\n")
	if err != nil {
		t.Fatal(err)
	}
	expected := []hunk{{"x/one.go", "a\nb\n\nd\n", "a\nc\n\nd\n"}, {"x/one.go", "f\n", "e\nf\n"}, {"two.go", "g\n", ""}}
	if rule.Text != "A rule, in words." || len(rule.hunks) != len(expected) {
		t.Fatalf("%q with %d hunks", rule.Text, len(rule.hunks))
	}
	for i, h := range rule.hunks {
		if h != expected[i] {
			t.Errorf("%+v, expected %+v", h, expected[i])
		}
	}
	for _, bad := range []string{
		"", "A rule.\n", "no sentence\n--- a/x\n+++ b/x\n@@\n-a\n", "A rule.\n--- a/x\n@@\n-a\n", "A rule.\n--- a/x\n+++ b/y\n@@\n-a\n",
		"A rule.\n--- a/x\n+++ b/x\n@@\n-a\nb\n",
	} {
		if rule, err := parse("bad", bad); err == nil || !strings.Contains(err.Error(), "bad.patch") {
			t.Errorf("%q was read as %+v, %v", bad, rule, err)
		}
	}
}

func TestHunksReplaceLinesThatOccurOnce(t *testing.T) {
	t.Parallel()
	h := hunk{from: "b\nc\n", to: "x\n"}
	for text, expected := range map[string]string{
		"a\nb\nc\nd\n":  "a\nx\nd\n",
		"b\nc\n":        "x\n",
		"b\nc\nab\nc\n": "x\nab\nc\n",
	} {
		if got, err := h.apply(text); err != nil || got != expected {
			t.Errorf("%q became %q, %v; expected %q", text, got, err, expected)
		}
	}
	for _, text := range []string{"", "a\n", "ab\nc\n", "b\ncd\n", "b\nc\nb\nc\n"} {
		if got, err := h.apply(text); !errors.Is(err, errNotOnce) {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
}
