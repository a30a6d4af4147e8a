// Package classes is `prove clicks classes`: how well the rules of clicks classify real requests whose class is known.
package classes

import (
	"errors"
	"fmt"

	"deeplink/bench/prove/proof"
	"deeplink/shared/click"
	"deeplink/shared/click/classes"
)

// Command measures precision and recall of each class.
type Command struct {
	Requests string `default:"shared/click/testdata/requests.ndjson" type:"path" help:"File of requests, one JSON object a line."`
}

// errBelow means that a class has a lower precision or recall than it may have.
var errBelow = errors.New("a class is below its bar")

// Run prints the tables.
func (c Command) Run(out *proof.Output) error {
	all, err := classes.Read(c.Requests)
	if err != nil {
		return err
	}
	training, heldOut := classes.Split(all)
	kept := true
	for _, part := range []struct {
		name     string
		requests []classes.Request
	}{{"Training part", training}, {"Held out", heldOut}, {"Both", all}} {
		scores, misses := classes.Measure(part.requests)
		fmt.Fprintf(out, "%s:\n\n", part.name)
		kept = classes.Print(out, scores) && kept
		fmt.Fprintf(out, "\nOf these, %d got another class than their own.\n\n", len(misses))
	}
	outside(out, all)
	if !kept {
		return errBelow
	}
	return nil
}

// outside prints the requests that precision and recall do not cover.
func outside(out *proof.Output, all []classes.Request) {
	fmt.Fprintf(out, "Outside these figures are requests that no rule can classify, because they do not tell what sent them, and a browser without the\n"+
		"headers by which the rules know browsers:\n\n| request | class | counted as | rule |\n|---|---|---|---|\n")
	for _, r := range all {
		if r.Outside != "" {
			got := r.Reason()
			fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r.Client, r.Class, got.Class(), reason(got))
		}
	}
}

func reason(r click.Reason) string { return "`" + r.String() + "`" }
