package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// A command without a claim would write a section without a statement.
func TestEveryCommandHasAClaim(t *testing.T) {
	t.Parallel()
	var c commands
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"speed --against": true}
	for _, leaf := range parser.Model.Leaves(false) {
		name, _, _ := strings.Cut(leaf.Path(), " <")
		names[name] = true
	}
	for name := range names {
		if claims[name] == "" {
			t.Errorf("the command %q has no claim", name)
		}
	}
	for name := range claims {
		if !names[name] {
			t.Errorf("the claim %q has no command", name)
		}
	}
}
