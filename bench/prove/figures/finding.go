// Package figures prints measurements: figures with their bounds, tables, percentiles and progress.
package figures

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Finding is one figure with its bound.
type Finding struct {
	What   string
	Figure string
	Bound  string
	Kept   bool
	Timed  bool // a busy machine alone may exceed the bound
}

// AtMost compares a duration with its upper bound.
func AtMost(what string, got, bound time.Duration) Finding {
	return Finding{What: what, Figure: Milliseconds(got), Bound: "≤ " + Milliseconds(bound), Kept: got <= bound, Timed: true}
}

// Counted is a figure that does not depend on how busy the machine is.
func Counted(what, figure, bound string, kept bool) Finding {
	return Finding{What: what, Figure: figure, Bound: bound, Kept: kept}
}

// None compares a count with zero.
func None(what string, n, of int) Finding {
	return Counted(what, fmt.Sprintf("%d of %d", n, of), "0", n == 0 && of > 0)
}

// ErrBound means that a measurement exceeded its bound.
var ErrBound = errors.New("a bound was not kept")

// Print writes a table of figures with their bounds.
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

// Unkept returns an error if a bound was exceeded.
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
