package events

import (
	"fmt"
	"io"

	"deeplink/bench/prove/figures"
)

// findings are the promises.
func (r *killReport) findings() []figures.Finding {
	l := r.ledger
	acknowledged, late := len(l.acknowledged), figures.None("sent and never acknowledged", l.sent-len(l.acknowledged), l.sent)
	late.Timed = true
	return []figures.Finding{
		figures.None("acknowledged and not in the table", l.missing(r.stored), acknowledged),
		figures.None("acknowledged and not in the export", l.missing(r.printed), acknowledged),
		figures.None("more than once in the table", r.stored.double(), len(r.stored)),
		figures.None("more than once in the export", r.printed.double(), len(r.printed)),
		figures.Counted("reported as accepted", fmt.Sprint(l.accepted), fmt.Sprintf("≤ %d stored", len(r.stored)), l.accepted <= int64(len(r.stored))),
		figures.None("unexpected responses", len(l.odd), int(l.attempts)),
		late,
	}
}

// print writes counts and promises as tables.
func (r *killReport) print(out io.Writer) {
	l := r.ledger
	fmt.Fprintf(out, "%d phones, %d events a second, %s\n\n| what | count |\n|---|--:|\n", len(r.phones), r.rate, r.duration)
	for _, line := range []struct {
		what  string
		count any
	}{
		{"kills", r.kills},
		{"events sent", l.sent},
		{"acknowledged", len(l.acknowledged)},
		{"stored", len(r.stored)},
		{"requests", l.attempts},
		{"responses by status", l.statuses},
		{fmt.Sprintf("unanswered requests %v", l.failures), l.unanswered()},
		{"duplicates reported", l.duplicates},
	} {
		fmt.Fprintf(out, "| %s | %v |\n", line.what, line.count)
	}
	figures.Print(out, r.findings())
	for _, odd := range l.odd[:min(len(l.odd), 3)] {
		fmt.Fprintln(out, "  ", odd)
	}
}
