package classes

import (
	"fmt"
	"io"

	"deeplink/shared/click"
)

// bar is the lowest precision and recall that a class may have; 0 is none.
type bar struct{ precision, recall float64 }

// bars are those of the contract of clicks.
var bars = map[click.Class]bar{
	click.Human: {0.99, 0.99}, click.PreviewBot: {0.98, 0.98}, click.Bot: {0.98, 0.98}, click.Assistant: {0.98, 0.98},
	click.Head: {0.98, 0.98}, click.Prefetch: {0.98, 0.98}, click.Scanner: {0.95, 0},
}

// order is that of the table.
var order = []click.Class{click.Human, click.PreviewBot, click.Bot, click.Assistant, click.Prefetch, click.Head, click.Scanner}

// Score is how the rules do on the requests of one class.
type Score struct {
	Class click.Class
	// Requests are those of the class, Found those of them that got the class, and Claimed all that got it.
	Requests, Found, Claimed int
}

// Precision is the share of the requests with this class that are of it.
func (s Score) Precision() float64 { return share(s.Found, s.Claimed) }

// Recall is the share of the requests of this class that got it.
func (s Score) Recall() float64 { return share(s.Found, s.Requests) }

// Kept reports whether the score reaches the bars of its class.
func (s Score) Kept() bool {
	return s.Precision() >= bars[s.Class].precision && s.Recall() >= bars[s.Class].recall
}

func share(part, all int) float64 {
	if all == 0 {
		return 1
	}
	return float64(part) / float64(all)
}

// Miss is a request that got another class than its own.
type Miss struct {
	Request
	Got click.Reason
}

// Measure classifies the requests that are not outside. It returns a score of each class, and the requests that got another class. A request
// whose User-Agent alone is known, and decides nothing, got no class: it counts against the recall of its class, and for no other class.
func Measure(requests []Request) (scores []Score, misses []Miss) {
	byClass := make(map[click.Class]*Score)
	for _, c := range order {
		byClass[c] = &Score{Class: c}
	}
	for _, r := range requests {
		if r.Outside != "" {
			continue
		}
		class, _ := click.ParseClass(r.Class)
		got := r.Reason()
		byClass[class].Requests++
		undecided := r.agentOnly() && (got == click.NoBrowserHeaders || got == click.HintsContradict || got == click.Browser)
		if !undecided {
			byClass[got.Class()].Claimed++
		}
		if got.Class() == class && !undecided {
			byClass[class].Found++
		} else {
			misses = append(misses, Miss{r, got})
		}
	}
	for _, c := range order {
		scores = append(scores, *byClass[c])
	}
	return scores, misses
}

// Split returns the requests by which rules may be written, and those that are held out.
func Split(requests []Request) (training, heldOut []Request) {
	for _, r := range requests {
		if r.HeldOut() {
			heldOut = append(heldOut, r)
		} else {
			training = append(training, r)
		}
	}
	return training, heldOut
}

// Print writes the scores as a table in Markdown, and reports whether all bars are reached.
func Print(w io.Writer, scores []Score) (kept bool) {
	kept = true
	fmt.Fprint(w, "| class | requests | precision | bar | recall | bar | kept |\n|---|---|---|---|---|---|---|\n")
	for _, s := range scores {
		b, verdict := bars[s.Class], "yes"
		if !s.Kept() {
			kept, verdict = false, "**no**"
		}
		fmt.Fprintf(w, "| %s | %d | %.3f | %s | %.3f | %s | %s |\n", s.Class, s.Requests, s.Precision(), atLeast(b.precision), s.Recall(), atLeast(b.recall), verdict)
	}
	return kept
}

func atLeast(bar float64) string {
	if bar == 0 {
		return "none"
	}
	return fmt.Sprintf("≥ %.2f", bar)
}
