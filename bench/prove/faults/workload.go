package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"deeplink/bench/prove/faults/history"
	"deeplink/bench/prove/fleet"
)

// writer changes one subject after another. Once the state of a subject becomes unknowable, it takes a new one.
type writer struct {
	run    *run
	random *rand.Rand
	name   string
	turn   int // number of subjects so far

	caller *caller
	*subject
	last history.State // the highest target so far
}

// take starts a new subject. addresses derives its short URLs from its name.
func (w *writer) take(addresses func(name string) []address) {
	w.turn++
	name := fmt.Sprintf("%s-%d", w.name, w.turn)
	w.subject = &subject{Key: w.run.recorder.NewKey(name, w.turn == 1), addresses: addresses(name)}
	w.last = -1
	w.run.board.put(w.subject)
}

// drop retires the subject.
func (w *writer) drop() {
	if w.subject != nil {
		w.run.board.remove(w.subject)
		w.subject = nil
	}
}

// next returns a target that was never used.
func (w *writer) next() history.State {
	w.last++
	return w.last
}

// change records one change around do, which requests it. Readers request the key during the change and right after it.
func (w *writer) change(what string, kind history.Kind, state history.State, do func() history.Outcome) history.Outcome {
	before := w.run.tally.now()
	w.Begin(what, kind, state)
	w.run.board.heat(w.subject)
	outcome := do()
	took := w.End(outcome)
	w.run.board.heat(w.subject)
	w.run.tally.change(before, outcome, took, revokes(what))
	return outcome
}

// revokes reports whether a change removes something that edges served.
func revokes(what string) bool {
	switch what {
	case "create", "reactivate", "resume", "get":
		return false
	}
	return true
}

// chance is true once in n calls on average.
func (w *writer) chance(n int) bool { return w.random.IntN(n) == 0 }

func (w *writer) upTo(span time.Duration) time.Duration { return fleet.Between(w.random, 0, span) }

// rest pauses for about span, and sometimes not at all: closely spaced changes meet each other's loads.
func (w *writer) rest(ctx context.Context, span time.Duration) bool {
	if w.chance(3) {
		return ctx.Err() == nil
	}
	return fleet.Pause(ctx, time.Duration(w.random.ExpFloat64()*float64(span)))
}

// createLink sends one request for a link at the address of the writer, which it first takes if it has none. It returns the reply and the
// target of the link.
func (w *writer) createLink(ctx context.Context) (said reply, to history.State, outcome history.Outcome) {
	if w.subject == nil {
		w.take(func(name string) []address { return []address{{path: "/" + w.caller.OrgKey + "/" + name}} })
	}
	to = w.next()
	outcome = w.change("create", history.Create, to, func() history.Outcome {
		said = w.caller.call(ctx, http.MethodPost, "/links", fleet.Fields{"path": "/x", "shortCode": w.Name, "fallbackUrl": w.target(to)}, patience)
		return said.outcome
	})
	return said, to, outcome
}

func answered(outcome history.Outcome) bool {
	return outcome == history.Complete || outcome == history.Pending
}

// linksPerWriter is the number of links of a writer. While it changes one, the others stay unchanged in the memory of every edge.
const linksPerWriter = 4

// linkWriters are the links of one writer, which changes one at a time.
type linkWriters struct {
	writer
	pace time.Duration
}

func (w *linkWriters) work(ctx context.Context) {
	if w.caller = w.run.newCaller(ctx); w.caller == nil {
		return
	}
	var links []*linkWriter
	for i := range linksPerWriter {
		link := &linkWriter{writer: w.writer}
		link.name = fmt.Sprintf("%s-%d", w.name, i)
		links = append(links, link)
	}
	for w.rest(ctx, w.pace) {
		pick(w.random, links).work(ctx)
	}
}

// linkWriter creates, edits, deactivates, reactivates and deletes a link, and starts again with its code.
type linkWriter struct {
	writer
	id        string
	active    bool
	shown     history.State // the target while the link is active: the last acknowledged one
	mayBeGone bool          // before the last request was sent
	patient   bool          // waits for every response
}

// work makes one change.
func (w *linkWriter) work(ctx context.Context) {
	switch {
	case w.id == "":
		w.create(ctx)
	case w.Unsure() && w.chance(2) || w.chance(5):
		w.delete(ctx)
	case w.active && w.chance(3):
		w.deactivate(ctx)
	case !w.active && !w.Unsure() && w.chance(2):
		w.reactivate(ctx)
	default:
		w.edit(ctx)
	}
}

func (w *linkWriter) deactivate(ctx context.Context) {
	w.patch(ctx, "deactivate", history.Off, fleet.Fields{"isActive": false})
}

// reactivate needs a link whose target is known.
func (w *linkWriter) reactivate(ctx context.Context) {
	w.patch(ctx, "reactivate", w.shown, fleet.Fields{"isActive": true})
}

// edit sends the whole state, because the current one may be unknown.
func (w *linkWriter) edit(ctx context.Context) {
	to := w.next()
	w.patch(ctx, "edit", to, fleet.Fields{"isActive": true, "fallbackUrl": w.target(to)})
}

func (w *linkWriter) create(ctx context.Context) {
	said, to, outcome := w.createLink(ctx)
	if answered(outcome) && said.status == http.StatusCreated {
		w.id, w.active, w.shown = said.id, true, to
	} else if outcome != history.Refused {
		w.drop() // a link with an unknown id may have been created
	}
}

// patch retries a few times until it gets a response: a repeat that changes nothing must wait for the edges like the first request.
func (w *linkWriter) patch(ctx context.Context, what string, state history.State, body fleet.Fields) {
	for range 3 {
		w.mayBeGone = w.Possible(history.Gone)
		var said reply
		outcome := w.change(what, history.Edit, state, func() history.Outcome {
			said = w.caller.call(ctx, http.MethodPatch, "/links/"+w.id, body, w.within())
			if said.status == http.StatusNotFound {
				return history.Refused
			}
			return said.outcome
		})
		if said.status == http.StatusNotFound {
			w.denied()
			w.delete(ctx)
			return
		}
		if answered(outcome) {
			if w.active = state != history.Off; w.active {
				w.shown = state
			}
			return
		}
		if !fleet.Pause(ctx, w.upTo(100*time.Millisecond)) {
			return
		}
	}
}

// delete retries until the link is known to be gone. A 404 is as good as the response to the delete itself.
func (w *linkWriter) delete(ctx context.Context) {
	for {
		what, method := "delete", http.MethodDelete
		if w.Unsure() && w.chance(3) {
			what, method = "get", http.MethodGet
		}
		w.mayBeGone = w.Possible(history.Gone)
		var said reply
		outcome := w.change(what, history.Delete, history.Gone, func() history.Outcome {
			said = w.caller.call(ctx, method, "/links/"+w.id, nil, w.within())
			if method == http.MethodGet && said.status != http.StatusNotFound {
				return history.Refused
			}
			return said.outcome
		})
		if said.status == http.StatusNotFound {
			w.denied()
		}
		if answered(outcome) {
			w.id = ""
			return
		}
		if !fleet.Pause(ctx, w.upTo(60*time.Millisecond)) {
			return
		}
	}
}

// denied is called when control returns 404 for the link.
func (w *linkWriter) denied() {
	if !w.mayBeGone {
		w.Lost("control returned 404 for a link that it had acknowledged and that was not deleted")
	}
}

// within returns the client's timeout, sometimes less than a response takes: the client then retries, and the link may be gone before any
// edge was notified.
func (w *linkWriter) within() time.Duration {
	if !w.patient && w.chance(8) {
		return 10*time.Millisecond + w.upTo(80*time.Millisecond)
	}
	return patience
}
