package faults

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/faults/history"
	"deeplink/bench/prove/fleet"
)

// suspender suspends and resumes an organization with two links, with the operator's command.
type suspender struct{ writer }

func (w *suspender) work(ctx context.Context) {
	for ctx.Err() == nil {
		if w.subject == nil && !w.settle(ctx) {
			continue
		}
		if !fleet.Pause(ctx, 100*time.Millisecond+w.upTo(400*time.Millisecond)) {
			return
		}
		if w.set(ctx, "suspend", history.Off) {
			fleet.Pause(ctx, 100*time.Millisecond+w.upTo(400*time.Millisecond))
			w.set(ctx, "resume", 0)
		}
	}
}

// settle creates an organization with its links.
func (w *suspender) settle(ctx context.Context) bool {
	if w.caller = w.run.newCaller(ctx); w.caller == nil {
		return false
	}
	codes := []string{"one", "two"}
	w.take(func(string) (all []address) {
		for _, code := range codes {
			all = append(all, address{path: "/" + w.caller.OrgKey + "/" + code})
		}
		return all
	})
	outcome := w.change("create", history.Create, 0, func() history.Outcome {
		outcome := history.Complete
		for _, code := range codes {
			said := w.caller.call(ctx, http.MethodPost, "/links", fleet.Fields{"path": "/x", "shortCode": code, "fallbackUrl": w.target(0)}, patience)
			switch {
			case !answered(said.outcome):
				return history.Unknown
			case said.outcome == history.Pending:
				outcome = history.Pending
			}
		}
		return outcome
	})
	if !answered(outcome) {
		w.drop()
		fleet.Pause(ctx, 200*time.Millisecond)
		return false
	}
	return true
}

func (w *suspender) set(ctx context.Context, verb string, state history.State) bool {
	outcome := w.change(verb, history.Edit, state, func() history.Outcome {
		return propagation(w.run.operate(ctx, "org", verb, w.caller.OrgKey))
	})
	if !answered(outcome) {
		w.drop()
		return false
	}
	return true
}

// domainWriter adds a custom domain with the operator's command, creates a link on it, and removes both by hand.
type domainWriter struct{ writer }

func (w *domainWriter) work(ctx context.Context) {
	if w.caller = w.run.newCaller(ctx); w.caller == nil {
		return
	}
	for fleet.Pause(ctx, w.upTo(500*time.Millisecond)) {
		if w.subject == nil {
			w.take(func(name string) []address { return []address{{host: name + ".bench.example", path: "/" + name}} })
		}
		if !w.round(ctx) {
			w.drop()
		}
	}
}

// round returns false when the state of the domain is unknown.
func (w *domainWriter) round(ctx context.Context) bool {
	host := w.addresses[0].host
	out, err := w.run.operate(ctx, "domain", "add", w.caller.OrgKey, host, "--verified")
	var domain struct{ ID string }
	if err != nil || json.Unmarshal(out, &domain) != nil {
		return false
	}
	to := w.next()
	if !answered(w.change("create", history.Create, to, func() history.Outcome {
		return w.caller.call(ctx, http.MethodPost, "/links",
			fleet.Fields{"path": "/x", "domainId": domain.ID, "shortCode": w.Name, "fallbackUrl": w.target(to)}, patience).outcome
	})) {
		return false
	}
	fleet.Pause(ctx, 100*time.Millisecond+w.upTo(time.Second))
	outcome := w.change("remove domain", history.Delete, history.Gone, func() history.Outcome {
		return w.run.byHand(ctx, 0, `delete from links where domain_id = $1`, `delete from domains where id = $1`)(domain.ID)
	})
	w.watch(ctx)
	return outcome == history.ByHand
}

// watch reads a key until well after every edge must have applied a change by hand. Control does not wait for the edges then; the bench
// waits for as long as the protocol allows them.
func (w *writer) watch(ctx context.Context) {
	longest := fleet.Lease + w.run.rig.stale[0] + 100*time.Millisecond
	for end := time.Now().Add(longest + time.Second); time.Now().Before(end) && fleet.Pause(ctx, 100*time.Millisecond); {
		w.run.board.heat(w.subject)
	}
}

// handWriter edits a link in the database, as an operator with psql would, without control and its hints.
type handWriter struct {
	writer
	id string
}

func (w *handWriter) work(ctx context.Context) {
	if w.caller = w.run.newCaller(ctx); w.caller == nil {
		return
	}
	for fleet.Pause(ctx, w.upTo(300*time.Millisecond)) {
		if w.id == "" {
			w.create(ctx)
			continue
		}
		if !w.edit(ctx) {
			w.id = ""
			w.drop()
			continue
		}
		w.watch(ctx)
	}
}

func (w *handWriter) create(ctx context.Context) {
	said, _, outcome := w.createLink(ctx)
	if answered(outcome) {
		w.id = said.id
	} else if outcome != history.Refused {
		w.drop()
	}
}

// edit makes one change. Its transaction stays open for a while, so that later transactions commit before it.
func (w *handWriter) edit(ctx context.Context) bool {
	open := w.upTo(400 * time.Millisecond)
	if w.chance(3) {
		outcome := w.change("delete by hand", history.Delete, history.Gone, func() history.Outcome {
			return w.run.byHand(ctx, open, `delete from links where id = $1`)(w.id)
		})
		w.id = ""
		return outcome == history.ByHand
	}
	to := w.next()
	return w.change("edit by hand", history.Edit, to, func() history.Outcome {
		return w.run.byHand(ctx, open, `update links set fallback_url = $2 where id = $1`)(w.id, w.target(to))
	}) == history.ByHand
}

// byHand runs statements in one transaction, as the owner of the database and without proxies, and commits after open.
func (r *run) byHand(ctx context.Context, open time.Duration, statements ...string) func(...any) history.Outcome {
	return func(values ...any) history.Outcome {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err := pgx.BeginFunc(ctx, r.rig.owner, func(tx pgx.Tx) error {
			for _, statement := range statements {
				if _, err := tx.Exec(ctx, statement, values...); err != nil {
					return err
				}
			}
			time.Sleep(open)
			return nil
		})
		if err != nil {
			return history.Unknown
		}
		return history.ByHand
	}
}
