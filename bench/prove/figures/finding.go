// Package figures prints what measurements find: figures beside their bounds, tables, percentiles, and how far a run is.
package figures

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Finding is one figure beside its bound.
type Finding struct {
	What   string
	Figure string
	Bound  string
	Kept   bool
	Timed  bool // a busy machine alone may break the bound
}

// AtMost compares a span with the longest that it may be.
func AtMost(what string, got, bound time.Duration) Finding {
	return Finding{What: what, Figure: Milliseconds(got), Bound: "≤ " + Milliseconds(bound), Kept: got <= bound, Timed: true}
}

// Counted is a figure that no busy machine can make worse.
func Counted(what, figure, bound string, kept bool) Finding {
	return Finding{What: what, Figure: figure, Bound: bound, Kept: kept}
}

// None compares a count with zero.
func None(what string, n, of int) Finding {
	return Counted(what, fmt.Sprintf("%d of %d", n, of), "0", n == 0 && of > 0)
}

// ErrBound says that something was measured which must not be so.
var ErrBound = errors.New("a bound was not kept")

// Print writes figures beside their bounds.
func Print(out io.Writer, findings []Finding) {
	fmt.Fprint(out, "\n| what | figure | bound | kept |\n|---|--:|--:|---|\n")
	for _, f := range findings {
		kept := "yes"
		if !f.Kept {
			kept = "**no**"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", f.What, f.Figure, f.Bound, kept)
	}
}

// Unkept is an error when a bound was not kept.
func Unkept(findings []Finding) error {
	n := 0
	for _, f := range findings {
		if !f.Kept {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%w: %d", ErrBound, n)
	}
	return nil
}
